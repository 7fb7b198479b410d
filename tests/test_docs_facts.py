"""What README, the docs and docstrings say about lagrax is what lagrax is: names, kinds, lists and numbers of things."""

import inspect
import pathlib
import re

import diffrax as dfx
import pytest

import lagrax as lx
import lagrax._lag
import lagrax._public
import lagrax.nn
import lagrax.series
import lagrax.train
from lagrax._adjoint._base import AbstractAdjoint
from lagrax._choices import EXPERIMENTS
from lagrax._method._read import method_of
from lagrax._results import RESULTS

ROOT = pathlib.Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = {path.relative_to(DOCS).as_posix(): path.read_text() for path in DOCS.rglob("*.md")}
README = (ROOT / "README.md").read_text()
REST = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
NUMBERS = {f"{start}teen": i for i, start in enumerate(("thir", "four", "fif", "six", "seven", "eigh", "nine"), 13)}


def public(module):
    module = lagrax._public if module is lx else module
    return [name for name, item in vars(module).items() if not name.startswith("_") and not inspect.ismodule(item)]


def named(words: str) -> set[str]:
    return set(re.findall(r"`(?:lagrax\.|lx\.|dfx\.)?(\w+)(?:\(.*?\))?`", words))


def adjoints() -> set[str]:
    classes = [getattr(lx, name) for name in public(lx) if inspect.isclass(getattr(lx, name))]
    # By name: whether the abstract one is public is not settled here.
    return {cls.__name__ for cls in classes if any(base.__name__ == "AbstractAdjoint" for base in cls.__mro__[1:])}


def solvers() -> set[str]:
    """Those of diffrax that lagrax takes."""

    def takes(cls):
        try:
            return method_of(cls()) is not None
        except (TypeError, ValueError, AttributeError):
            return False

    found = {name: cls for name, cls in vars(dfx).items() if inspect.isclass(cls) and issubclass(cls, dfx.AbstractSolver)}
    return {name for name, cls in found.items() if not name.startswith("Abstract") and takes(cls)}


@pytest.mark.parametrize("module", [lx, lagrax.nn, lagrax.train, lagrax.series], ids=lambda module: module.__name__)
def test_every_public_name_is_in_the_reference(module):
    text = "".join(page for name, page in PAGES.items() if "api" in name)
    places = re.escape(module.__name__) + r"|lagrax"  # what both offer is described once
    assert not [name for name in public(module) if not re.search(rf"\b(?:{places})\.{name}\b", text)]


def test_the_reference_names_nothing_that_is_gone():
    for path in re.findall(r"^::: ([\w.]+)", PAGES["api.md"], re.MULTILINE):
        parts = path.split(".")
        for i in range(len(parts), 0, -1):
            try:
                thing = __import__(".".join(parts[:i]), fromlist=["_"])
                break
            except ImportError:
                continue
        for part in parts[i:]:
            thing = getattr(thing, part)


def test_every_page_is_in_the_navigation_and_has_something_to_look_at():
    nav = (ROOT / "mkdocs.yml").read_text()
    listed = re.findall(r": ([\w/-]+\.md)$", nav, re.MULTILINE)
    assert sorted(listed) == sorted(PAGES)
    looks = re.compile(r"!\[|<img|^:::|^```json", re.MULTILINE)  # a picture, the reference, what is in a file
    assert not [name for name, text in PAGES.items() if not looks.search(text)]


def test_links_of_files_that_are_not_part_of_the_site():
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / name).read_text()):
            assert (ROOT / link).exists(), f"{name}: {link}"


def test_every_kind_of_delay_has_its_row_and_its_page():
    """In the table of delays.md."""
    kinds = {name for name in public(lagrax._lag) if name in public(lx) and name not in ("AbstractLag", "Gamma", "Uniform")}
    rows = [line for line in PAGES["delays.md"].splitlines() if line.startswith("|")]
    for kind in kinds:
        row = next((row for row in rows if re.search(rf"`[^`]*\b{kind}\(", row)), None)
        assert row is not None, kind
        assert set(re.findall(r"\]\(([\w-]+\.md)", row)) <= set(PAGES)
    for page in {link for row in rows for link in re.findall(r"\]\(([\w-]+\.md)", row)} - {"solving.md", "gradients.md"}:
        assert f"(docs/{page})" in README, page


def test_lists_of_adjoints():
    assert len(adjoints()) >= 4
    listed = re.search(r"- `adjoint`:.*?(?=\n    - )", inspect.getdoc(lx.ddesolve).replace("\n- ", "\n    - "), re.DOTALL)[0]
    assert {name for name in named(listed) if name[0].isupper()} == adjoints()
    table = PAGES["adjoints.md"].split("## Which to use")[1].split("\n\n")[1]
    assert set(re.findall(r"api\.md#lagrax\.(\w+)", table)) == adjoints()
    papers = adjoints() - {"DiscreteAdjoint", "ForwardMode"}
    assert "the paper's own two adjoints" in README and len(papers) == 2
    assert {"DiscreteAdjoint", *papers} <= named(PAGES["gradients.md"])


def test_what_contributors_are_told():
    """The signature of an adjoint, and files and make targets that exist."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    arguments = ", ".join(inspect.signature(AbstractAdjoint.solve).parameters).removeprefix("self, ")
    assert f"`solve({arguments})`" in text
    for path in re.findall(r"`((?:tests|docs|lagrax|examples|benchmarks)/[\w/.-]+)`", text):
        assert (ROOT / path).exists(), path
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([\w-]+)`", text + README)) <= targets


def test_lists_of_solvers():
    listed = re.search(r"- `solver`:.*?(?=\n- )", inspect.getdoc(lx.ddesolve), re.DOTALL)[0]
    assert {name for name in named(listed) if name[0].isupper()} == solvers()
    with pytest.raises(ValueError) as refused:
        method_of(dfx.ImplicitEuler())
    assert set(re.findall(r"[A-Z]\w+\d|Euler|Heun|Midpoint|Ralston", str(refused.value).split("(", 1)[1])) == solvers()
    assert (
        "`Euler` to `Dopri8`, `Kvaerno3` to `Kvaerno5`" in README
        and {"Euler", "Dopri8", "Kvaerno3", "Kvaerno5"} <= solvers()
    )


def test_where_it_is_in_the_code():
    """Every file of the core has its row, and names that the theory points at are there."""
    table = PAGES["how-it-works.md"].split("## Where it is in the code")[1]
    listed = {name.rstrip("/") for name in re.findall(r"`(_\w+(?:\.py|/))`", table)}
    core = {path.name for path in (ROOT / "lagrax").glob("_*") if not path.name.startswith("__")}
    assert listed == core - {"_choices.py"}
    code = "".join(path.read_text() for path in (ROOT / "lagrax" / "_adjoint").glob("*.py"))
    symbols = PAGES["adjoints.md"].split("| symbol | in the code |")[1].split("\n\n")[0]
    for name in re.findall(r"`(\w+)(?:\.(\w+))?(?:\(.*?\))?`", symbols):
        assert all(re.search(rf"\b{part}\b", code) for part in name if part), name


def test_results():
    """Those that diffrax does not have are in the table."""
    ours = set(RESULTS._name_to_item) - set(dfx.RESULTS._name_to_item)
    assert ours and {name for name in ours if f"`{name}`" not in PAGES["api.md"]} == set()


def test_experiments():
    assert {name for name in EXPERIMENTS if f"| `{name}` |" not in PAGES["reproduce.md"]} == set()


def test_numbers_in_words():
    """README counts the programs of the gallery."""
    found = re.search(r"\*\*: (\w+) programs with a picture each", README)
    programs = len(list((DOCS / "gallery").glob("*.md"))) - 1
    shown = re.findall(r'<a href="(docs/gallery/[\w-]+\.md)"><img src="(docs/img/[\w-]+\.png)"', README)
    assert NUMBERS[found[1]] == programs and f"These and {REST[programs - len(shown)]} more" in README
    assert all((ROOT / path).exists() for pair in shown for path in pair)


STALE = r"come next|next steps of the project|not yet implemented|coming soon|will be added|TODO|FIXME"


def test_no_promises():
    said = {"README.md": README, **PAGES}
    assert not [f"{name}: {line}" for name, text in said.items() for line in text.splitlines() if re.search(STALE, line)]
