"""`lagrax completion`: a script that lets a shell complete commands, options and names."""

import argparse
from collections.abc import Mapping
from typing import Any

from .._choices import ADJOINTS, EXPERIMENTS, MORE_PRESETS, PRESETS, SOLVERS, pick

HELP = "a script for your shell, which completes commands and options"
_SHELLS = ("bash", "zsh")
_VALUES = {"--preset": PRESETS + MORE_PRESETS, "--adjoint": ADJOINTS, "--solver": SOLVERS}
_NAMES = {"reproduce": (*EXPERIMENTS, "all"), "list": EXPERIMENTS, "completion": _SHELLS}
_SCRIPT = """\
_lagrax() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD - 1]}}" words=""
    case "$before" in
{values}
        *) case "${{COMP_WORDS[1]}}" in
{commands}
        esac ;;
    esac
    [ "$COMP_CWORD" -eq 1 ] && words="{all}"
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _lagrax lagrax
"""


def declare(parser: argparse.ArgumentParser) -> None:
    parser.description = "Prints a script for your shell."
    parser.epilog = "bash:  lagrax completion bash >> ~/.bashrc\nzsh:   lagrax completion zsh >> ~/.zshrc"
    parser.add_argument("shell", metavar="SHELL", help=" or ".join(_SHELLS))


def run(given: argparse.Namespace) -> int:
    pick("shell", given.shell, _SHELLS)
    if given.shell == "zsh":
        print("autoload -U +X bashcompinit && bashcompinit")
    print(_script(given.commands), end="")
    return 0


def _script(all_commands: Mapping[str, Any]) -> str:
    values = "\n".join(f'        {option}) words="{" ".join(names)}" ;;' for option, names in _VALUES.items())
    commands = []
    for name, command in all_commands.items():
        parser = argparse.ArgumentParser()
        command.declare(parser)
        options = [option for action in parser._actions for option in action.option_strings if option.startswith("--")]
        commands.append(f'            {name}) words="{" ".join([*_NAMES.get(name, ()), *options])}" ;;')
    return _SCRIPT.format(values=values, commands="\n".join(commands), all=" ".join(all_commands))
