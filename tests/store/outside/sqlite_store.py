"""A store of another package, as its author would write it: objects in a file of SQLite."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

from dayfly.wire.outages import Traffic
from dayfly.wire.stores.base import (
    Buffer,
    ObjectInfo,
    Pieces,
    Store,
    Version,
    check_name,
    check_names,
    ends_early,
    missing,
    size_of,
)

_TABLE = "create table if not exists objects (name text primary key, version text, data blob)"


def open_sqlite(url: str) -> Store:
    """The store at `sqlite:///absolute/file?folder`."""
    file, _, folder = url.removeprefix("sqlite://").partition("?")
    return SqliteStore(file, folder)


class SqliteStore(Store):
    """Objects below a folder of names in one file."""

    def __init__(self, file: str, folder: str = "", traffic: Traffic | None = None) -> None:
        self.url = f"sqlite://{file}?{folder}" if folder else f"sqlite://{file}"
        self.traffic = traffic or Traffic()
        self._file = file
        self._folder = f"{folder}/" if folder else ""
        self._ask(_TABLE)

    def _ask(self, text: str, *values: object) -> tuple[list[Any], int]:
        with closing(sqlite3.connect(self._file, timeout=60)) as base, base:
            done = base.execute(text, values)
            return done.fetchall(), done.rowcount

    def _path(self, name: str) -> str:
        return f"{self._folder}{check_name(name)}"

    def _put(self, text: str, data: Buffer | Pieces, *values: object) -> Version | None:
        whole = b"".join(data.make()) if isinstance(data, Pieces) else bytes(data)
        if len(whole) != size_of(data):
            raise ValueError(f"{len(whole)} bytes came, not {size_of(data)}")
        version = uuid.uuid4().hex
        stored = self._ask(text, version, whole, *values)[1] == 1
        self.traffic.count(up=len(whole) if stored else 0)
        return Version(version) if stored else None

    def put(self, name: str, data: Buffer | Pieces) -> Version:
        text = "insert or replace into objects (version, data, name) values (?, ?, ?)"
        version = self._put(text, data, self._path(name))
        assert version is not None
        return version

    def put_new(self, name: str, data: Buffer) -> Version | None:
        text = "insert or ignore into objects (version, data, name) values (?, ?, ?)"
        return self._put(text, data, self._path(name))

    def put_if(self, name: str, data: Buffer, version: Version) -> Version | None:
        text = "update objects set version = ?, data = ? where name = ? and version = ?"
        return self._put(text, data, self._path(name), version)

    def get_versioned(self, name: str) -> tuple[bytes, Version]:
        path = self._path(name)
        rows, _ = self._ask("select data, version from objects where name = ?", path)
        if not rows:
            raise missing(name, self)
        self.traffic.count(down=len(rows[0][0]))
        return rows[0][0], Version(rows[0][1])

    def read_into(self, name: str, ranges: Sequence[tuple[int, memoryview]]) -> None:
        rows, _ = self._ask("select data from objects where name = ?", self._path(name))
        if not rows:
            raise missing(name, self)
        data = rows[0][0]
        for offset, into in ranges:
            part = data[offset : offset + into.nbytes]
            if len(part) < into.nbytes:
                raise ends_early(name, self, offset + len(part))
            into[:] = part
        self.traffic.count(down=sum(into.nbytes for _, into in ranges))

    def stat(self, name: str) -> ObjectInfo | None:
        text = "select length(data), version from objects where name = ?"
        rows, _ = self._ask(text, self._path(name))
        self.traffic.count()
        return ObjectInfo(name, *rows[0]) if rows else None

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        below = f"{self._path(prefix)}/" if prefix else self._folder
        text = (
            "select substr(name, ?), length(data), version from objects "
            "where substr(name, 1, ?) = ? and name > ? order by name"
        )
        start = len(self._folder) + 1
        rows, _ = self._ask(text, start, len(below), below, f"{self._folder}{after}")
        self.traffic.count()
        return (ObjectInfo(*row) for row in rows)

    def folders(self, prefix: str = "") -> Iterator[str]:
        below = f"{check_name(prefix)}/" if prefix else ""
        rest = (info.name.removeprefix(below) for info in self.list(prefix))
        return iter(sorted({f"{below}{one.split('/')[0]}" for one in rest if "/" in one}))

    def delete(self, names: Iterable[str]) -> None:
        for name in check_names(names):
            self._ask("delete from objects where name = ?", self._path(name))
        self.traffic.count()

    def below(self, prefix: str, *, private: bool = False) -> Store:
        return SqliteStore(self._file, self._path(prefix), self.traffic)
