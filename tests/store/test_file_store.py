"""Objects are whole or not there, and never outside of the store's root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.errors import RequestError
from dayfly.wire.store import FileStore, StoreError, open_store


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "root")


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@given(st.text(alphabet="a./\\~ -_\n\0é%", max_size=12) | st.text(max_size=20))
def test_names_never_leave_the_root(name: str) -> None:
    root = Path("/some/root")
    with suppress(ValueError):
        path = FileStore(root).path(name)
        assert Path(os.path.normpath(path)).is_relative_to(root)
        assert path != root
        assert not set(path.relative_to(root).parts) & {"..", "."}


@pytest.mark.parametrize(
    "name",
    ["", "/etc/passwd", "..", "../x", "a/../../x", "a/..", ".hidden", "a/", "a//b", "-a", "a\n",
     "a b", "~/x", "a\0", "x" * 256],
)  # fmt: skip
def test_names_that_are_none(name: str, store: FileStore) -> None:
    for use in (store.get, store.exists, store.delete, store.names, lambda n: store.put(n, b"")):
        with pytest.raises(ValueError, match="is no name of an object"):
            use(name)
    assert not store.root.exists()


@pytest.mark.parametrize("name", ["a", "a/b/c.npy", "checkpoint/000000001/part-0-of-4", "_x.1-b"])
def test_put_get_replace_delete(name: str, store: FileStore) -> None:
    assert not store.exists(name)
    store.put(name, b"first")
    store.put(name, memoryview(b"second"))
    assert store.get(name) == b"second"
    assert store.exists(name)
    assert files(store.root) == [name]
    store.delete(name)
    store.delete(name)
    assert not store.exists(name)
    with pytest.raises(StoreError, match=f"^{name} is not in {store.root}$"):
        store.get(name)


def test_folders(store: FileStore) -> None:
    for name in ("a/2/x", "a/10/x", "a/file", "b"):
        store.put(name, b"")
    assert store.names("a") == ["10", "2", "file"]
    assert store.names("c") == store.names("b") == []
    store.delete("a/2")
    assert store.names("a") == ["10", "file"]


def test_reading_a_part(store: FileStore) -> None:
    store.put("x", bytes(range(100)))
    into = bytearray(10)
    store.read_into("x", (20, memoryview(into)))
    assert into == bytes(range(20, 30))
    store.read_into("x", (100, memoryview(b"")))
    with pytest.raises(StoreError, match=r"^x in .* ends before byte 100$"):
        store.read_into("x", (0, memoryview(bytearray(5))), (95, memoryview(into)))
    with pytest.raises(StoreError, match=r"^y is not in"):
        store.read_into("y", (0, memoryview(into)))


class Interrupted(BaseException):
    """As Ctrl-C is."""


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError, Interrupted])
def test_a_write_that_fails_leaves_the_earlier_object_and_nothing_else(
    error: BaseException, store: FileStore
) -> None:
    store.put("a/x", b"earlier")

    def write(file) -> None:
        file.write(b"half of")
        assert store.get("a/x") == b"earlier", "not there before it is whole"
        raise error

    with pytest.raises((StoreError, ValueError, Interrupted)):
        store.put_stream("a/x", write)
    assert store.get("a/x") == b"earlier"
    assert files(store.root) == ["a/x"]


def test_readers_see_whole_objects_only(store: FileStore) -> None:
    contents = [bytes([value]) * 200_000 for value in range(8)]
    store.put("x", contents[0])

    def write(content: bytes) -> None:
        for _ in range(10):
            store.put("x", content)

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write, content) for content in contents]
        while not all(writer.done() for writer in writers):
            assert store.get("x") in contents
        for writer in writers:
            writer.result()
    assert files(store.root) == ["x"]


def test_put_new_stores_once_among_threads(store: FileStore) -> None:
    threads = 8
    for turn in range(10):
        barrier = Barrier(threads)

        def put(number: int, name: str, barrier: Barrier) -> bool:
            barrier.wait()
            return store.put_new(name, bytes([number]))

        name = f"turn/{turn}"
        with ThreadPoolExecutor(threads) as pool:
            won = list(pool.map(put, range(threads), [name] * threads, [barrier] * threads))
        assert won.count(True) == 1
        assert store.get(name) == bytes([won.index(True)])
    assert len(files(store.root)) == 10


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[FileStore]:
    """A store on a file system of 64 KiB."""
    root = tmp_path / "tiny"
    root.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(root)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        yield FileStore(root)
    finally:
        subprocess.run(["umount", str(root)], check=True)


def test_a_full_disk_is_named(tiny: FileStore) -> None:
    """Numpy writes arrays by itself, and its error has no number."""
    tiny.put("small", b"kept")
    large = np.ones(100_000)
    for write in (
        lambda: tiny.put("a/large", bytes(100_000)),
        lambda: tiny.put_new("a/large", bytes(100_000)),
        lambda: tiny.put_stream("a/large", lambda file: np.save(file, large)),
    ):
        with pytest.raises(StoreError, match=r"^cannot write .*/tiny/a/large: (No space|\d+ req)"):
            write()
        assert files(tiny.root) == ["small"]
    assert tiny.get("small") == b"kept"


def test_a_store_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(
        StoreError, match=r"^cannot write .*/file/x: (File exists|Not a directory)$"
    ):
        FileStore(tmp_path / "file").put("x", b"")
    with pytest.raises(StoreError, match=r"^cannot write .*: File name too long$"):
        FileStore(tmp_path).put("x" * 240, b"")


def test_urls(store: FileStore) -> None:
    store.put("x", b"1")
    assert open_store(store.url).get("x") == b"1"
    for url in ("s3://bucket", "file://relative", "/plain", "file:", ""):
        with pytest.raises(RequestError, match="only file:///absolute/path is known"):
            open_store(url)


def test_a_directory_that_was_removed_is_not_made_anew(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "run")
    store.put("a/b", b"x")
    shutil.rmtree(store.root)
    for there in (store, store.below("folder")):
        with pytest.raises(StoreError, match="run' was removed while it was in use"):
            there.put("a/c", b"x")
    assert not store.root.exists()
    (tmp_path / "keeps its number from being used again").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other").rename(store.root)
    with pytest.raises(StoreError, match="was replaced by another while"):
        store.put_new("c", b"x")
    assert not list(store.root.iterdir())


def test_what_killed_writers_left_goes_and_nothing_else(store: FileStore) -> None:
    store.put("checkpoint/latest.json", b"kept")
    for name in ("run.json", "checkpoint/latest.json"):
        (store.root / f"{name}.{'0a' * 16}.tmp").write_bytes(b"half")
    for name in ("mine.tmp", "checkpoint/other.123.tmp"):
        (store.root / name).write_bytes(b"not ours")
    store.discard_unfinished()
    assert files(store.root) == ["checkpoint/latest.json", "checkpoint/other.123.tmp", "mine.tmp"]
