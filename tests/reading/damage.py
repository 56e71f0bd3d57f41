"""Ways in which files are damaged, as hypothesis draws them; and what reads the files of a run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from dayfly.errors import DayflyError
from dayfly.life import checkpoints
from dayfly.planning.plan import Plan
from dayfly.runs import events
from dayfly.runs.job_record import Record
from dayfly.runs.plans import configuration_of, settings_of
from dayfly.runs.report import write_report
from dayfly.runs.report.comparison import compared_in
from dayfly.runs.report.reading import RunFiles, read_bill, read_history, rebill
from dayfly.runs.scripts.record import ScriptRecord
from dayfly.wire.stores.files import FileStore

#: Made by the version of dayfly that wrote them; later ones read them, too.
RECORDED = Path(__file__).parent / "recorded"
#: What stands in place of a value.
_OTHERS: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    7,
    1.5,
    -1e300,
    10**12,
    10**400,
    "",
    "x",
    "../../etc/passwd",
    "a\0b",
    "\ud800",
    [],
    [[]],
    [1, "x"],
    {},
    {"x": 1},
)
_TEXTS = (
    b"",
    b"\0" * 50,
    b"null",
    b"[]",
    b'"text"',
    b"{}",
    b"[" * 5000,
    b"\xff\xfe{}",
    b"{'a': 1}",
)

Damage = Callable[[bytes], bytes]


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to all that is in a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def put(tree: Any, path: tuple[Any, ...], value: Any) -> None:
    """Put a value into a tree."""
    for key in path[:-1]:
        tree = tree[key]
    tree[path[-1]] = value


@st.composite
def damaged(draw: st.DrawFn, whole: bytes, *, lines: bool = False) -> bytes:
    """A file with one thing wrong. lines: each is an object by itself."""
    how = draw(st.sampled_from(["value", "value", "value", "key", "drop", "bytes", "text", "form"]))
    if how == "text":
        return draw(st.sampled_from(_TEXTS))
    if how == "form":
        encoding = draw(st.sampled_from(["utf-16", "utf-32", "utf-8-sig"]))
        return whole.decode().encode(encoding)
    if how == "bytes":
        return _other_bytes(draw, whole)
    parts = whole.splitlines(keepends=True) if lines else [whole]
    number = draw(st.integers(0, len(parts) - 1))
    tree = json.loads(parts[number])
    path = draw(st.sampled_from(list(places(tree))))
    within = tree
    for key in path[:-1]:
        within = within[key]
    value = within[path[-1]]
    if how == "value":
        within[path[-1]] = draw(st.sampled_from(_OTHERS))
    else:
        del within[path[-1]]
        if how == "key" and isinstance(within, dict):
            within[draw(st.sampled_from(["", "x", "\ud800", "kind", f"{path[-1]} "]))] = value
    text = json.dumps(tree)
    if how == "value" and draw(st.booleans()):
        text = text.replace("-1e+300", draw(st.sampled_from(["NaN", "Infinity", "-Infinity"])))
        text = text.replace("1.5", "1e999")
    parts[number] = text.encode() + b"\n"
    return b"".join(parts)


def _other_bytes(draw: st.DrawFn, whole: bytes) -> bytes:
    at = draw(st.integers(0, len(whole) - 1))
    match draw(st.sampled_from(["flip", "cut", "insert", "twice"])):
        case "flip":
            return whole[:at] + bytes([whole[at] ^ draw(st.integers(1, 255))]) + whole[at + 1 :]
        case "cut":
            return whole[:at]
        case "insert":
            return whole[:at] + draw(st.binary(min_size=1, max_size=4)) + whole[at:]
        case _:
            return whole + whole


@contextmanager
def with_bytes(file: Path, content: bytes) -> Iterator[None]:
    """A file with other bytes, for a while."""
    before = file.read_bytes()
    file.write_bytes(content)
    try:
        yield
    finally:
        file.write_bytes(before)


def copied(name: str, place: Path) -> Path:
    """A recorded run's directory, to be damaged."""
    return Path(shutil.copytree(RECORDED / name, place / name))


def report(directory: Path) -> None:
    """As `dayfly report` and `Run.report` do it."""
    run = RunFiles.read(directory)
    rebill(directory, events=run.events)
    write_report(directory, directory.with_suffix(".html"), run=run)
    compared_in(directory)
    read_bill(directory)
    read_history(directory)


def resume(directory: Path) -> None:
    """What `dayfly train --resume`, or `dayfly run --resume`, reads before anything starts."""
    if directory.name == "script":
        ScriptRecord.load(directory)
    else:
        Record.load(directory)
        store = FileStore(directory)
        committed = checkpoints.latest(store)
        if committed is not None:
            checkpoints.stages(committed)
            checkpoints.read(store, committed)
            checkpoints.read_own(store, committed, 0, 2)
    events.Events.read(directory / "events")


def read_plan(file: Path) -> None:
    """As `dayfly simulate` and `dayfly train --plan` do it."""
    plan = Plan.read(file)
    settings_of(plan, str(file))
    configuration_of(plan, str(file))


def refusal(action: Callable[[Path], object], place: Path) -> str | None:
    """The sentence with which something is refused, if it is: any other exception gets out."""
    try:
        action(place)
    except DayflyError as error:
        return str(error)
    return None
