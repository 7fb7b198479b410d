"""The layout of the package: sizes, imports that point downwards, and the tree in CONTRIBUTING."""

import ast
import graphlib
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "lagrax"
FILES = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text()) for name, path in FILES.items()}
LINES, FUNCTION_LINES = 400, 60


def test_no_file_is_long():
    assert {name: lines for name, path in FILES.items() if (lines := len(path.read_text().splitlines())) > LINES} == {}


def code_lines(function):
    """Without the docstring, which says what a public function is for at the length that takes."""
    first = function.body[0]
    described = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return function.end_lineno - function.lineno + 1 - (first.end_lineno - first.lineno + 1 if described else 0)


def test_no_function_is_long():
    functions = [
        (name, node) for name, tree in TREES.items() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
    ]
    assert {f"{name}.{node.name}": code_lines(node) for name, node in functions if code_lines(node) > FUNCTION_LINES} == {}


def imported(name):
    """The modules of the package that a module imports, wherever it does so; without those that are for the type checker."""
    package = name.removesuffix(".__init__") if name.endswith(".__init__") else name.rpartition(".")[0]
    for_types = {
        id(inner)
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.ImportFrom) and node.level and id(node) not in for_types:
            base = package.split(".")[: len(package.split(".")) - node.level + 1] + (node.module or "").split(".")
            base = ".".join(part for part in base if part)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield next((each for each in (inner, f"{inner}.__init__", base, f"{base}.__init__") if each in FILES), base)


def place(name):
    """The row of the tree that a module belongs to, such as `nn/` or `_solve.py`."""
    parts = name.split(".")
    return f"{parts[1]}/" if len(parts) > 2 else f"{parts[1]}.py"


def listed():
    tree = (ROOT / "CONTRIBUTING.md").read_text().split("```text\n")[1].split("```")[0]
    return [re.match(r"(\S+)\s{2,}(\S.*)", line).groups() for line in tree.splitlines()]


def test_the_tree_in_contributing_is_true():
    """A row, with a sentence, for every folder and file but those that Python names."""
    there = {place(name) for name in FILES if len(name.split(".")) > 2 or not name.split(".")[1].startswith("__")}
    rows = [row for row, _ in listed()]
    assert sorted(rows) == sorted(there)


def test_imports_point_downwards():
    """Of the tree in CONTRIBUTING: each row imports from those below it. The last two are everybody's: names alone, and what
    the package itself offers."""
    rows = [row for row, _ in listed()]
    everybodys = {"_choices.py", "_public.py", "__init__.py"}
    upwards = {
        f"{name} imports {found}"
        for name in FILES
        if place(name) in rows and place(name) not in everybodys
        for found in imported(name)
        if place(found) not in {*everybodys, place(name)} and rows.index(place(found)) < rows.index(place(name))
    }
    assert upwards == set()


def test_no_module_imports_itself_around_a_corner():
    graph = {name: {found for found in imported(name) if found != name} for name in FILES if not name.endswith("__init__")}
    graphlib.TopologicalSorter(graph).prepare()
