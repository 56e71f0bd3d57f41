"""The files that a script keeps for its later generations, in the run's store.

    files/<digest>    a file's content
    files.json        {"files": [{"name": "model.pt", "digest": "…", "size_bytes": 1234}, …]}

They are put when no worker of the script runs. All of them count from the moment when `files.json`
names them; until then those of before do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import xxhash

from dayfly.dataclass_json import Matches, dump, read
from dayfly.json_files import parse
from dayfly.life.commits import Digest
from dayfly.life.led_store import FILES
from dayfly.runs.whole_files import replacing
from dayfly.wire.stores.base import Buffer, ObjectDamaged, ObjectMissing, Pieces, Store

_FOLDER = "files"
_PIECE_BYTES = 2**20
_REMEDY = "put back the object from a copy, or begin the run anew"
#: Below a directory: no part of it leads elsewhere.
_Below = Annotated[str, Matches(r"(?!\.\.?(/|$))[^/\0]+(/(?!\.\.?(/|$))[^/\0]+)*", "a path below")]


@dataclass(frozen=True, slots=True)
class _Kept:
    name: _Below
    digest: Digest
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Files:
    """`files.json`."""

    files: tuple[_Kept, ...] = ()


def keep(store: Store, directory: Path) -> None:
    """Puts the files below a directory into a run's store, in place of those of before.

    Nobody may write there meanwhile. Empty folders, links and rights are not kept.

    Args:
        store: the run's, for its leader.
        directory: of the script's files.
    """
    before = {kept.digest for kept in _read(store).files}
    found: list[_Kept] = []
    for file in sorted(directory.rglob("*")):
        if file.is_file() and not file.is_symlink():
            name = file.relative_to(directory).as_posix()
            kept = _Kept(name, _digest(file), file.stat().st_size)
            found.append(kept)
            if kept.digest not in before:
                content = Pieces(kept.size_bytes, partial(pieces, file))
                store.put(f"{_FOLDER}/{kept.digest}", content)
    store.put(FILES, json.dumps(dump(_Files(tuple(found)))).encode())
    gone = before - {kept.digest for kept in found}
    store.delete(f"{_FOLDER}/{digest}" for digest in gone)


def take(store: Store, directory: Path) -> None:
    """Writes the files that a run's store keeps below a directory, in place of what is there.

    Raises:
        ObjectDamaged: one of them is not what was put.
        RequestError: `files.json` is damaged.
    """
    files = _read(store).files
    names = {kept.name for kept in files}
    for file in [file for file in directory.rglob("*") if file.is_file()]:
        if file.relative_to(directory).as_posix() not in names:
            file.unlink()
    for kept in files:
        file = directory / kept.name
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as beside:
            download(store, f"{_FOLDER}/{kept.digest}", beside)
            if _digest(beside) != kept.digest:
                raise ObjectDamaged(f"{_FOLDER}/{kept.digest} in {store} was damaged: {_REMEDY}")


def download(store: Store, name: str, file: Path) -> None:
    """Writes an object into a file. Raises ObjectMissing."""
    coming = store.get_pieces(name)
    first = next(coming)  # of one that is missing no file is made
    with file.open("wb") as into:
        into.write(first)
        into.writelines(coming)


def pieces(file: Path) -> Iterator[Buffer]:
    """A file's content, a piece at a time."""
    with file.open("rb") as opened:
        while piece := opened.read(_PIECE_BYTES):
            yield piece


def _read(store: Store) -> _Files:
    try:
        tree = parse(store.get(FILES), f"{store}/{FILES}", _REMEDY)
    except ObjectMissing:
        return _Files()
    return read(_Files, tree, f"{store}/{FILES}", remedy=_REMEDY)


def _digest(file: Path) -> str:
    state = xxhash.xxh3_128()
    for piece in pieces(file):
        state.update(piece)
    return state.hexdigest()
