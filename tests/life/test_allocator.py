"""Which settings of the C library's allocator a process gets."""

from __future__ import annotations

import os

import pytest

from dayfly.life import allocator
from dayfly.life.allocator import TUNABLES


def tunables(text: str) -> dict[str, str]:
    return dict(one.split("=", 1) for one in text.split(":"))


def test_blocks_of_any_size_are_kept() -> None:
    found = tunables(allocator.keeping({})[TUNABLES])
    assert int(found["glibc.malloc.mmap_threshold"]) >= 32 * 2**20
    assert int(found["glibc.malloc.trim_threshold"]) == 2**40
    assert found["glibc.malloc.hugetlb"] == "1"


def test_the_users_own_tunables_go_before() -> None:
    own = {TUNABLES: "glibc.malloc.hugetlb=0:glibc.malloc.tcache_count=9"}
    found = tunables(allocator.keeping(own)[TUNABLES])
    assert found["glibc.malloc.hugetlb"] == "0"
    assert found["glibc.malloc.tcache_count"] == "9"
    assert "glibc.malloc.mmap_threshold" in found


def test_who_gives_back_has_its_children_do_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the user's own, which were given to the process that it was forked from."""
    made = allocator.keeping({TUNABLES: "glibc.malloc.trim_threshold=77"})
    monkeypatch.setenv(TUNABLES, made[TUNABLES])
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(allocator, "_mallopt", lambda: lambda *args: asked.append(args))
    allocator.give_back()
    found = tunables(os.environ[TUNABLES])
    assert found["glibc.malloc.mmap_threshold"] == str(2 * 2**20)
    assert found["glibc.malloc.trim_threshold"] == "77"
    assert found["glibc.malloc.hugetlb"] == "1"
    assert sorted(asked) == [(-3, 2 * 2**20), (-1, 77)]


@pytest.mark.parametrize(
    ("library", "most"),
    [
        (("glibc", "2.36"), 2**40),
        (("glibc", "2.41"), 2**40),
        (("glibc", "2.28"), 32 * 2**20),
        (("", ""), 32 * 2**20),
    ],
)
def test_an_older_library_gets_a_threshold_that_it_takes(
    library: tuple[str, str], most: int
) -> None:
    assert allocator._most_bytes(library) == most
