"""What something takes while it lasts, seen through the kernel's mark."""

from __future__ import annotations

import mmap

import pytest

from dayfly.runs.profiling import layers
from dayfly.runs.profiling.layers import held_mib

MIB = 2**20


def _hold(mib: int) -> None:
    """Pages of its own, all written to, and gone again."""
    with mmap.mmap(-1, mib * MIB) as pages:
        for at in range(0, len(pages), mmap.PAGESIZE):
            pages[at] = 1


def test_what_is_held_for_a_moment_is_seen() -> None:
    # The kernel counts pages by processor, and sums up late.
    assert held_mib(lambda: _hold(40)) == pytest.approx(40, abs=4)


def test_more_before_does_not_hide_it() -> None:
    _hold(80)
    assert held_mib(lambda: _hold(20)) == pytest.approx(20, abs=4)


def test_what_stays_is_not_counted() -> None:
    kept: list[bytearray] = []

    def first_only() -> None:
        if not kept:
            kept.append(bytearray(b"1" * 40 * MIB))

    assert held_mib(first_only) == pytest.approx(0, abs=4)


def test_none_where_nobody_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "_trim", lambda: None)
    assert held_mib(lambda: None) is None
