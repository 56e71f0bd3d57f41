"""The house stands as CONTRIBUTING.md draws it: imports, docstrings, sizes, and what docs name."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOUSE = ROOT / "src" / "dayfly"
FILES = sorted(HOUSE.rglob("*.py"))
LARGEST_LINES = 400

# Imports point one way, downwards. Rooms on one floor do not know each other.
#
#                  cli                  the command line
#                   |
#                 runs                  one job from start to bill
#             /    |    \
#      life   training   planning        lives; a worker's step; what a run will take
#             \    |    /
#                specs                  what is to run, as data
#                  |
#                 wire                  how functions talk
#                   |
#               catalogue               limits and prices
#
# EVERYBODY's modules are for everybody. job.py is what the user asks for: for those who train it
# and run it; callbacks/ is what hears of it, and of the job it sees the types.
# data/ is how files become samples: for jobs that name them, and for workers that decode them.
# models/ is for whoever starts a run. The package itself (`import dayfly`) is the user's door.
_READING = {"dataclass_json", "json_files"}
EVERYBODY = {
    "credentials",
    "errors",
    "misspelt",
    "closing",
    "lifeline",
    "owned",
    "threads",
    "batches",
    "uncompiled",
    "garbage",
    "registry",
    "elementwise",
    "cpus",
    "compiled",
    "native",
    *_READING,
}
WIRE = {*EVERYBODY, "catalogue"}
SPECS = {*WIRE, "wire"}
LIFE = {*SPECS, "specs"}
TRAINING = {*SPECS, "specs", "job", "callbacks", "data"}
PLANNING = {*SPECS, "specs"}
RUNS = {*LIFE, *TRAINING, *PLANNING, "life", "training", "planning"}
ALLOWED: dict[str, set[str]] = {
    "credentials": set(),
    "errors": {"credentials"},
    "dataclass_json": {"errors"},
    "json_files": {"errors", "dataclass_json"},
    "misspelt": {"errors"},
    "closing": set(),
    "lifeline": set(),
    "owned": set(),
    "threads": set(),
    "batches": set(),
    "uncompiled": set(),
    "garbage": set(),
    "registry": {"errors"},
    "elementwise": set(),
    "cpus": set(),
    "compiled": {"errors", "native"},
    "native": set(),
    "callbacks": {*SPECS, "specs", "job"},
    "data": {"errors", "misspelt", "registry"},
    "job": {"errors", "misspelt", "callbacks", "data"},
    "models": set(),
    "catalogue": {"errors", "registry", "elementwise", *_READING},
    "wire": WIRE,
    "specs": SPECS,
    "life": LIFE,
    "training": TRAINING,
    "planning": PLANNING,
    "runs": RUNS,
    "cli": {*RUNS, "runs", "models", "dayfly"},
    "dayfly": {"errors", "callbacks", "job", "data", "runs"},
    "__main__": {"cli"},
}
_MODULE_IN_TEXT = re.compile(r"""(["'])(dayfly(?:\.[a-z_0-9]+)+)(?::[\w.]+)?\1""")


def room_of(module: str) -> str:
    """The room of `dayfly.wire.keys` is `wire`; that of `dayfly`, or of a name in it, `dayfly`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ALLOWED else "dayfly"


@functools.cache
def tree_of(source: str) -> ast.Module:
    """Parsed once, for all who look at it."""
    return ast.parse(source)


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All of a module, however deep; expressions, which are the most of it, have none."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for node in getattr(tree, field, ()):
            yield node
            yield from statements(node)


def imports(source: str, package: str) -> Iterator[tuple[int, str]]:
    """Line and module of every import from dayfly, wherever it stands in a module of `package`.

    Imports in functions and under TYPE_CHECKING count, and so do modules named in a text to be
    imported by name, such as "dayfly.runs.worker:main".
    """
    for node in statements(tree_of(source)):
        found: list[str] = []
        match node:
            case ast.Import():
                found = [alias.name for alias in node.names]
            case ast.ImportFrom():
                start = node.module or ""
                if node.level:
                    above = package.split(".")[: len(package.split(".")) - node.level + 1]
                    start = ".".join([*above, *([start] if start else [])])
                found = [f"{start}.{alias.name}" for alias in node.names]
        for module in found:
            if module.split(".")[0] == "dayfly":
                yield getattr(node, "lineno", 0), module
    for named in _MODULE_IN_TEXT.finditer(source):
        if is_there(named[2]):
            yield source.count("\n", 0, named.start()) + 1, named[2]


def is_there(module: str) -> bool:
    """Whether a name in a text is a module's; groups of entry points have names alike."""
    path = HOUSE.parent.joinpath(*module.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def wrong_imports(source: str, package: str) -> list[str]:
    """What a module of `package` imports against the drawing above."""
    room = room_of(package)
    return [
        f"line {line}: {room} imports {module}"
        for line, module in imports(source, package)
        if room_of(module) not in {room, *ALLOWED[room]}
    ]


def package_of(path: Path) -> str:
    """`dayfly.wire` for its __init__.py and for keys.py in it; `dayfly.job` for job.py."""
    parts = ["dayfly", *path.relative_to(HOUSE).with_suffix("").parts]
    top_level = len(parts) == 2 and parts[1] != "__init__"
    return ".".join(parts if top_level else parts[:-1])


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def offenders(found: Callable[[Path], list[str]], paths: Sequence[Path]) -> dict[str, list[str]]:
    """What is found in each file, of those in which something is."""
    return {relative(path): wrong for path in paths if (wrong := found(path))}


def test_imports_point_down() -> None:
    assert offenders(lambda path: wrong_imports(path.read_text(), package_of(path)), FILES) == {}


def test_every_room_is_in_the_drawing() -> None:
    found = {room_of(package_of(path)) for path in FILES if path.parent != HOUSE}
    found |= {path.stem for path in FILES if path.parent == HOUSE} - {"__init__", "py"}
    assert found | {"dayfly"} == ALLOWED.keys()


@pytest.mark.parametrize(
    ("package", "source", "imported"),
    [
        ("dayfly.wire", "from dayfly.life.faults import Faults", "dayfly.life.faults.Faults"),
        ("dayfly.wire", "import dayfly.job", "dayfly.job"),
        ("dayfly.wire.channels", "from ...training import flat", "dayfly.training.flat"),
        ("dayfly.catalogue", "import math, dayfly.wire.keys", "dayfly.wire.keys"),
        ("dayfly.life", "def f():\n    from dayfly.training import flat", "dayfly.training.flat"),
        ("dayfly.training", "if TYPE_CHECKING:\n    import dayfly.life", "dayfly.life"),
        ("dayfly.training", "from dayfly import runs", "dayfly.runs"),
        ("dayfly.runs", "from dayfly import __version__", "dayfly.__version__"),
        ("dayfly.runs", "import dayfly.cli.app as app", "dayfly.cli.app"),
        ("dayfly.life", 'HANDLER = "dayfly.runs.worker:main"', "dayfly.runs.worker"),
        ("dayfly.job", "import dayfly.models", "dayfly.models"),
    ],
)
def test_a_wrong_import_is_caught(package: str, source: str, imported: str) -> None:
    (found,) = wrong_imports(source, package)
    assert found.endswith(f"{room_of(package)} imports {imported}")


@pytest.mark.parametrize(
    ("package", "source"),
    [
        (
            "dayfly.runs",
            "from dayfly.life import checkpoints\nfrom dayfly.training.flat import sparse",
        ),
        ("dayfly.wire.channels", "from dayfly.wire.keys import Key\nfrom . import files"),
        ("dayfly.cli", "import dayfly\nfrom dayfly.runs import launch"),
        ("dayfly.training", 'import torch, numpy\nprint("see dayfly.runs.settings for more")'),
        ("dayfly.life", "from dayflylike.runs import x"),
    ],
)
def test_a_right_import_is_not(package: str, source: str) -> None:
    assert wrong_imports(source, package) == []


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Classes = dict[str, ast.ClassDef]


def classes_by_name(sources: list[str]) -> Classes:
    """All classes; a name that is used twice is rare enough for a check of docstrings."""
    nodes = [node for source in sources for node in statements(tree_of(source))]
    return {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}


def inherits_docstring(owner: ast.ClassDef, method: str, known: Classes) -> bool:
    """Whether a base class, near or far, says what the method does."""
    for expression in owner.bases:
        base = known.get(ast.unparse(expression).partition("[")[0].rpartition(".")[2])
        if base is None or base is owner:
            continue
        for node in base.body:
            if (
                isinstance(node, Definition)
                and node.name == method
                and ast.get_docstring(node, clean=False)
            ):
                return True
        if inherits_docstring(base, method, known):
            return True
    return False


def undocumented(source: str, known: Classes) -> list[str]:
    """Public names of a module without a docstring, `Class.method` for methods."""
    tree = tree_of(source)
    missing = [] if ast.get_docstring(tree, clean=False) else ["the module"]

    def visit(owner: ast.Module | ast.ClassDef, prefix: str) -> None:
        for node in owner.body:
            # A test says what it does by its name.
            if not isinstance(node, Definition) or node.name.startswith(("_", "test_")):
                continue
            documented = ast.get_docstring(node, clean=False) or (
                isinstance(owner, ast.ClassDef) and inherits_docstring(owner, node.name, known)
            )
            if not documented:
                missing.append(f"{prefix}{node.name} (line {node.lineno})")
            if isinstance(node, ast.ClassDef):
                visit(node, f"{prefix}{node.name}.")

    visit(tree, "")
    return missing


def test_public_names_say_what_they_do() -> None:
    known = classes_by_name([path.read_text() for path in FILES])
    without = offenders(lambda path: undocumented(path.read_text(), known), FILES)
    assert without == {}, "without a docstring"


def test_a_missing_docstring_is_caught() -> None:
    source = '''"""A module."""
class Base:
    """A base."""
    def told(self): "What it does."
    def untold(self): pass
    def _own(self): pass
class Child(Base):
    """A child."""
    def told(self): pass
    def untold(self): pass
def bare(): pass
'''
    names = [name.partition(" ")[0] for name in undocumented(source, classes_by_name([source]))]
    assert names == ["Base.untold", "Child.untold", "bare"]


def test_no_file_is_long() -> None:
    lines = {relative(path): len(path.read_text().splitlines()) for path in FILES}
    long = {path: count for path, count in lines.items() if count > LARGEST_LINES}
    assert long == {}, "one concept a file"


PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_PATH = re.compile(r"(?<![\w/.<>{}*~$-])(?:[\w.-]+/)+[\w.-]*(?![\w/<{*-])")
#: A path that begins so is a path of this repository.
_ANCHORS = ("src", "tests", "docs", "examples", "benchmarks", ".ci")


def missing_targets(page: Path) -> list[str]:
    """Links and paths of a page that lead nowhere. A `.py` path may begin at src/dayfly or tests.

    Run directories and other paths of the user's are not ours to check.
    """
    text = page.read_text()
    missing = []
    for target in _LINK.findall(text):
        file = target.partition("#")[0]
        elsewhere = "://" in target or target.startswith("mailto:")
        if file and not elsewhere and not (page.parent / file).exists():
            missing.append(target)
    for match in _PATH.findall(_LINK.sub("", text)):
        path = match.rstrip(".")
        if path.split("/")[0] in _ANCHORS:
            places = [ROOT]
        elif path.endswith(".py"):
            places = [ROOT, HOUSE, ROOT / "tests"]
        else:
            continue
        if not any((place / path).exists() for place in places):
            missing.append(path)
    return missing


def test_what_pages_name_exists() -> None:
    assert offenders(missing_targets, PAGES) == {}


#: What a file of this house is called in a docstring or a comment; `script.py` is a user's.
_FILE_IN_TEXT = re.compile(r"(?<![\w.*])(?!script\.py)[a-z_0-9]+\.py\b")
_FILES = {
    path.name
    for place in ("src", "tests", "benchmarks", "examples")
    for path in (ROOT / place).rglob("*.py")
}


def test_files_that_texts_name_exist() -> None:
    named = {path: set(_FILE_IN_TEXT.findall(path.read_text())) - _FILES for path in FILES}
    assert {path: names for path, names in named.items() if names} == {}


def test_a_dead_link_is_caught(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "[gone](gone.md) [here](page.md#top) [web](https://example.org/src/x.py)\n"
        "`src/dayfly/gone.py`, wire/keys.py, wire/gone.py, tests/channels/, runs/my-run/x.json.\n"
        "file:///src/path and docs/<name>.md"
    )
    assert missing_targets(page) == ["gone.md", "src/dayfly/gone.py", "wire/gone.py"]


def test_contributing_shows_every_room() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rooms = [path.name for path in HOUSE.iterdir() if (path / "__init__.py").exists()]
    assert [room for room in rooms if f"{room}/" not in text] == []


def test_importing_dayfly_is_quick() -> None:
    code = (
        "import dayfly, sys; print(*sorted({'torch', 'typer', 'rich', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_command_is_installed() -> None:
    command = Path(sys.executable).with_name("dayfly")
    done = subprocess.run([command, "--help"], capture_output=True, text=True, check=True)
    assert "demo" in done.stdout
    assert "train" in done.stdout
