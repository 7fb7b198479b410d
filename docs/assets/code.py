"""Lines of code that are wrapped go on one level deeper than they start, as a person would write them.

Options of a command are never broken after a hyphen of theirs.
"""

import re

LINE = re.compile(r'<span id="__span-\d+-\d+">((?:<span[^>]*>)?)( *)')
CODE = re.compile(r"<code.*?</code>", re.DOTALL)
OPTION = re.compile(r"(?<=[\s>(])--?[a-zA-Z][\w-]*")


def on_page_content(content: str, **_) -> str:
    """Each line of a block is a `span` (`line_spans` in mkdocs.yml), which gets its indentation; site.css does the rest."""

    def indented(found: re.Match) -> str:
        return f'<span class="line" style="--indent: {len(found[2]) + 4}ch">{found[1]}{found[2]}'

    whole = lambda code: OPTION.sub(r'<span class="whole">\g<0></span>', code[0])
    return CODE.sub(whole, LINE.sub(indented, content))
