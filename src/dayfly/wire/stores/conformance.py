"""The tests that every store passes: derive from `StoreConformance` and give it a store.

    class TestMine(StoreConformance):
        @pytest.fixture
        def store(self):
            yield open_store("mine://place/of/its/own")     # empty

`open_store` has to know its URL, as other processes open the store by that. pytest is needed here
alone; `pytest.register_assert_rewrite("dayfly.wire.stores.conformance")` in a conftest.py shows
values in failures.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from dayfly.wire.stores import open_store
from dayfly.wire.stores.base import (
    PIECE_BYTES,
    ObjectDamaged,
    ObjectMissing,
    Pieces,
    Store,
    Version,
)

#: Seconds until a test is hung rather than slow.
SOON_S = 60.0
NAMES = ["a", "a/b/c.npy", "checkpoint/000000001/part-0-of-4", "_x.1-b"]
NO_NAMES = [
    *("", "/etc/passwd", "..", "../x", "a/../../x", "a/..", ".hidden", "a/", "a//b", "-a", "a\n"),
    *("a b", "~/x", "a\0", "x" * 256, f"x.{'0a' * 16}.tmp"),
]
#: Of an object that a store may have to write and read in several requests.
LARGE_BYTES = 20 * 2**20 + 7


class StoreConformance:
    """What is promised by `Store`, one test a promise."""

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        """An empty store, which `open_store(store.url)` opens in other processes."""
        raise NotImplementedError("give the suite a store: override this fixture")

    @pytest.mark.parametrize("name", NAMES)
    def test_an_object_is_put_replaced_and_removed(self, name: str, store: Store) -> None:
        assert store.stat(name) is None
        first = store.put(name, b"first")
        second = store.put(name, memoryview(b"the second"))
        assert first != second
        assert store.get(name) == b"the second"
        assert store.get_versioned(name) == (b"the second", second)
        info = store.stat(name)
        assert info is not None
        assert (info.name, info.size_bytes, info.version) == (name, 10, second)
        assert listed(store) == [name]
        store.delete([name])
        store.delete([name, "other"])
        assert store.stat(name) is None
        assert listed(store) == []

    def test_an_empty_object_is_one(self, store: Store) -> None:
        assert store.put_new("x", b"") is not None
        assert store.get("x") == b""
        assert [info.size_bytes for info in store.list()] == [0]
        assert b"".join(store.get_pieces("x")) == b""

    def test_the_same_bytes_again_have_a_version(self, store: Store) -> None:
        """It may be the same one: some stores know contents by their digest."""
        store.put("x", b"same")
        version = store.put("x", b"same")
        assert store.get_versioned("x")[1] == version
        assert store.put_if("x", b"other", version) is not None

    @pytest.mark.parametrize("name", NO_NAMES)
    def test_what_is_no_name_is_refused(self, name: str, store: Store) -> None:
        into = memoryview(bytearray(1))
        uses: list[Callable[[], Any]] = [
            lambda: store.get(name),
            lambda: store.get_versioned(name),
            lambda: store.put(name, b""),
            lambda: store.put_new(name, b""),
            lambda: store.put_if(name, b"", Version("x")),
            lambda: store.read_into(name, [(0, into)]),
            lambda: list(store.get_pieces(name)),
            lambda: store.stat(name),
            lambda: store.delete([name]),
            lambda: store.below(name),
        ]
        if name:  # else the whole store
            uses += [
                lambda: list(store.list(name)),
                lambda: list(store.folders(name)),
                lambda: store.clear(name),
            ]
        for use in uses:
            with pytest.raises(ValueError, match="is no name of an object"):
                use()
        assert listed(store) == []

    def test_one_name_is_not_taken_for_its_letters(self, store: Store) -> None:
        store.put("a", b"")
        with pytest.raises(ValueError, match="is one name"):
            store.delete("a")
        assert listed(store) == ["a"]

    def test_a_missing_object_is_named(self, store: Store) -> None:
        into = memoryview(bytearray(1))
        uses: list[Callable[[], Any]] = [
            lambda: store.get("a/x"),
            lambda: store.get_versioned("a/x"),
            lambda: store.read_into("a/x", [(0, into)]),
            lambda: list(store.get_pieces("a/x")),
        ]
        for use in uses:
            with pytest.raises(ObjectMissing, match=r"^a/x is not in .+: check that") as raised:
                use()
            assert str(store) in str(raised.value)

    def test_a_folder_is_no_object(self, store: Store) -> None:
        store.put("a/b/x", b"1")
        assert store.stat("a/b") is None
        with pytest.raises(ObjectMissing):
            store.get("a/b")
        store.delete(["a/b", "a"])
        assert listed(store) == ["a/b/x"]

    def test_objects_are_listed_flat_and_sorted(self, store: Store) -> None:
        names = ["a-b", "a.b", "a/10/x", "a/2/x", "a/2/y", "a/2-x", "ab", "b/c/d/e", "z"]
        for name in reversed(names):
            store.put(name, name.encode())
        assert listed(store) == sorted(names)
        assert [info.size_bytes for info in store.list()] == [len(one) for one in sorted(names)]
        assert listed(store, "a") == ["a/10/x", "a/2-x", "a/2/x", "a/2/y"]
        assert listed(store, "a/2") == ["a/2/x", "a/2/y"]
        assert listed(store, "a/2/x") == listed(store, "none") == []
        for after in ("a", "a-b", "a/2", "a/2-x", "a/2/x", "a/2/xx", "b/", "b/c/d/e", "zz"):
            assert listed(store, after=after) == [name for name in sorted(names) if name > after]
        assert listed(store, "a/2", after="a/2/x") == ["a/2/y"]
        for info in store.list("a"):
            known = store.stat(info.name)
            assert known is not None
            assert info.version in (None, known.version)

    def test_folders(self, store: Store) -> None:
        for name in ("a/2/x", "a/10/x", "a/10/y/z", "a/file", "b"):
            store.put(name, b"")
        assert list(store.folders()) == ["a"]
        assert list(store.folders("a")) == ["a/10", "a/2"]
        assert list(store.folders("a/10")) == ["a/10/y"]
        assert list(store.folders("b")) == list(store.folders("none")) == []
        store.delete(["a/2/x"])
        assert list(store.folders("a")) == ["a/10"], "a folder is there as long as it has objects"

    def test_all_below_a_folder_is_removed(self, store: Store) -> None:
        for name in ("a/1", "a/b/2", "ab", "c/3"):
            store.put(name, b"")
        store.clear("a")
        store.clear("a")
        assert listed(store) == ["ab", "c/3"]
        store.below("c").clear()
        assert listed(store) == ["ab"]
        store.clear()
        assert listed(store) == []
        store.put("a/1", b"again")
        assert listed(store) == ["a/1"]

    def test_a_store_below_has_the_same_objects(self, store: Store) -> None:
        below = store.below("a/b")
        below.put("c/x", b"1")
        assert store.get("a/b/c/x") == b"1"
        assert listed(below) == ["c/x"]
        assert list(below.folders()) == ["c"]
        assert listed(below.below("c", private=True)) == ["x"]
        version = store.stat("a/b/c/x")
        assert version is not None
        assert version.version is not None
        assert below.put_if("c/x", b"2", version.version) is not None
        assert open_store(below.url).get("c/x") == b"2"

    def test_its_url_opens_it_elsewhere(self, store: Store) -> None:
        store.put("x", b"1")
        assert open_store(store.url).get("x") == b"1"

    def test_parts_are_read_into_given_memory(self, store: Store) -> None:
        data = bytes(range(256)) * 4096
        store.put("x", data)
        places = [(20, 10), (0, 1), (700_000, 300_000), (21, 3), (40, 0), (len(data), 0)]
        memory = [bytearray(size) for _, size in places]
        ranges = [(at, memoryview(into)) for (at, _), into in zip(places, memory, strict=True)]
        store.read_into("x", ranges)
        assert memory == [data[at : at + size] for at, size in places]
        store.read_into("x", [])
        for at in (len(data) - 5, len(data), len(data) + 5):
            with pytest.raises(ObjectDamaged, match=r"^x in .* ends before byte \d+: "):
                store.read_into("x", [(0, memoryview(memory[0])), (at, memoryview(bytearray(10)))])

    def test_a_large_object_goes_in_and_out_in_pieces(self, store: Store) -> None:
        piece = bytes(range(251)) * 4177  # near 1 MiB, and of no round size
        count, rest = divmod(LARGE_BYTES, len(piece))
        made = []

        def pieces() -> Iterator[bytes]:
            made.append(1)
            for _ in range(count):
                yield piece
            yield piece[:rest]

        store.put("large", Pieces(LARGE_BYTES, pieces))
        assert made
        into = bytearray(LARGE_BYTES)
        half = LARGE_BYTES // 2
        view = memoryview(into)
        store.read_into("large", [(half, view[half:]), (0, view[:half])])
        assert into == piece * count + piece[:rest]
        got = list(store.get_pieces("large"))
        assert b"".join(got) == into
        assert max(map(len, got)) <= PIECE_BYTES, "no more than that is in memory"
        assert store.stat("large").size_bytes == LARGE_BYTES  # type: ignore[union-attr]

    def test_an_object_that_is_replaced_while_it_is_read_is_told(self, store: Store) -> None:
        store.put("x", bytes(2 * PIECE_BYTES))
        pieces = store.get_pieces("x")
        assert next(pieces) == bytes(PIECE_BYTES)
        store.put("x", b"1" * 2 * PIECE_BYTES)
        with pytest.raises(ObjectDamaged, match="was replaced while it was read: read it again"):
            list(pieces)

    def test_a_put_that_fails_leaves_the_earlier_object_and_nothing_more(
        self, store: Store
    ) -> None:
        store.put("a/x", b"earlier")

        def pieces() -> Iterator[bytes]:
            yield b"half of"
            assert store.get("a/x") == b"earlier", "not there before it is whole"
            raise Interrupted

        for name in ("a/x", "a/new"):
            with pytest.raises(Interrupted):
                store.put(name, Pieces(100, pieces))
        assert store.get("a/x") == b"earlier"
        assert listed(store) == ["a/x"]
        with pytest.raises(ValueError, match="bytes came, not 100"):
            store.put("a/x", Pieces(100, lambda: [b"too few"]))
        assert store.get("a/x") == b"earlier"

    @pytest.mark.long
    def test_readers_see_whole_objects_only(self, store: Store) -> None:
        contents = [bytes([value]) * 200_000 for value in range(4)]
        store.put("x", contents[0])

        def write(content: bytes) -> None:
            for _ in range(5):
                store.put("x", content)

        with ThreadPoolExecutor(4) as pool:
            writers = [pool.submit(write, content) for content in contents]
            while not all(writer.done() for writer in writers):
                assert store.get("x") in contents
                into = bytearray(200_000)
                view = memoryview(into)
                store.read_into("x", [(0, view[:10]), (199_990, view[199_990:])])
                assert into[0] == into[-1]
            for writer in writers:
                writer.result()
        assert listed(store) == ["x"]

    def test_put_new_stores_once_among_threads(self, store: Store) -> None:
        threads = 4
        for turn in range(3):
            barrier, name = Barrier(threads), f"turn/{turn}"

            def put(number: int, name: str = name, barrier: Barrier = barrier) -> Version | None:
                barrier.wait(SOON_S)
                return store.put_new(name, bytes([number]))

            with ThreadPoolExecutor(threads) as pool:
                won = list(pool.map(put, range(threads)))
            (winner,) = [number for number, version in enumerate(won) if version is not None]
            assert store.get_versioned(name) == (bytes([winner]), won[winner])
        assert len(listed(store)) == 3

    def test_put_if_compares_and_swaps(self, store: Store) -> None:
        earlier = store.put("a/x", b"0")
        store.delete(["a/x"])
        assert store.put_if("a/x", b"0", earlier) is None
        assert listed(store) == [], "what is not there is not replaced"
        first = store.put_new("a/x", b"1")
        assert first is not None
        second = store.put_if("a/x", b"2", first)
        assert second is not None
        assert second != first
        assert store.put_if("a/x", b"3", first) is None, "that was before the second"
        assert store.get_versioned("a/x") == (b"2", second)
        third = store.put("a/x", b"4")
        assert store.put_if("a/x", b"5", second) is None
        store.delete(["a/x"])
        assert store.put_if("a/x", b"6", third) is None
        assert store.stat("a/x") is None

    def test_no_change_is_lost_among_threads(self, store: Store) -> None:
        store.put_new("count", b"0")
        with ThreadPoolExecutor(3) as pool:
            for done in [pool.submit(increase, store, "count", 4) for _ in range(3)]:
                done.result(SOON_S)
        assert store.get("count") == b"12"

    @pytest.mark.long
    def test_no_change_is_lost_among_processes(self, store: Store) -> None:
        store.put_new("count", b"0")
        processes = [started("increase", store.url, "count", "5") for _ in range(3)]
        for process in processes:
            assert process.wait(SOON_S) == 0
        assert store.get("count") == b"15"

    @pytest.mark.long
    def test_a_killed_writer_leaves_nothing_that_a_listing_shows(self, store: Store) -> None:
        store.put("a/there", b"1")
        process = started("write", store.url, "a/large", "half")
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"half\n"
        finally:
            process.kill()
            process.wait(SOON_S)
        assert listed(store) == ["a/there"]
        assert store.stat("a/large") is None
        assert list(store.folders("a")) == []
        store.below("a").discard_unfinished()
        store.put("a/large", b"whole")
        assert store.get("a/large") == b"whole"

    def test_it_counts_requests_and_bytes(self, store: Store) -> None:
        before = store.traffic.counters()
        store.put("x", bytes(100))
        store.put_new("x", bytes(100))
        store.below("a").put_new("y", bytes(10))
        store.get("x")
        store.read_into("x", [(0, memoryview(bytearray(30)))])
        store.stat("x")
        listed(store)
        after = store.traffic.counters()
        moved = {name: after[name] - before[name] for name in after}
        assert moved["bytes_up"] == 110, "what came second stored nothing"
        assert moved["bytes_down"] == 130
        assert (moved["puts"], moved["gets"]) == (3, 2)
        assert moved["requests"] >= 7


class Interrupted(BaseException):
    """As Ctrl-C is."""


def listed(store: Store, prefix: str = "", after: str = "") -> list[str]:
    """Names of the objects, in the order in which the store gives them."""
    return [info.name for info in store.list(prefix, after)]


def increase(store: Store, name: str, times: int) -> None:
    """Adds one to a number in the store, so many times, against whoever does the same."""
    for _ in range(times):
        while True:
            data, version = store.get_versioned(name)
            if store.put_if(name, str(int(data) + 1).encode(), version) is not None:
                break


def write(store: Store, name: str, word: str) -> None:
    """Writes a large object up to its middle, says a word, and waits to be killed."""

    def pieces() -> Iterator[bytes]:
        yield bytes(LARGE_BYTES // 2)
        print(word, flush=True)
        sys.stdin.read()

    store.put(name, Pieces(LARGE_BYTES, pieces))


def started(what: str, url: str, name: str, argument: str) -> subprocess.Popen[bytes]:
    """A process that does `increase` or `write` with the store of a URL."""
    command = [sys.executable, "-m", __name__, what, url, name, argument]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


if __name__ == "__main__":
    _, _what, _url, _name, _argument = sys.argv
    if _what == "increase":
        increase(open_store(_url), _name, int(_argument))
    else:
        write(open_store(_url), _name, _argument)
