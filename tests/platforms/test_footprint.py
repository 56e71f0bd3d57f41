"""A peak is what a function needs: with a little more it runs, with less it is killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from platform_testing import run

from dayfly.life.platforms import footprint
from dayfly.life.platforms.base import Ended, Outcome, Platform
from dayfly.life.platforms.cgroups import Cgroup, Controller
from dayfly.life.platforms.footprint import Footprint, Resident

pytestmark = pytest.mark.long

MIB = 2**20
HELD_MIB, FILE_MIB, ROOMY_MIB = 200, 300, 1200

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="memory cgroups need root here")


@root_only
def test_the_peak_is_what_decides_whether_a_limit_is_enough(
    platform: Platform, tmp_path: Path
) -> None:
    """A file of more than it holds is written and read meanwhile, and counts for nothing."""
    payload = {"mib": HELD_MIB, "file_mib": FILE_MIB, "file": str(tmp_path / "file")}

    def under(memory_mib: float) -> Ended:
        return run(platform, "hold_and_write", payload, memory_mib=int(memory_mib))

    idle = run(platform, "echo", memory_mib=ROOMY_MIB)
    roomy = under(ROOMY_MIB)
    assert idle.peak_mib is not None
    assert roomy.peak_mib is not None
    assert 0.98 * HELD_MIB <= roomy.peak_mib - idle.peak_mib <= 1.1 * HELD_MIB
    assert under(1.03 * roomy.peak_mib).outcome is Outcome.RETURNED
    killed = under(0.96 * roomy.peak_mib)
    assert killed.outcome is Outcome.OUT_OF_MEMORY
    assert killed.peak_mib == pytest.approx(0.96 * roomy.peak_mib, abs=2)


@pytest.mark.parametrize("memory_mib", [None, ROOMY_MIB])
def test_a_peak_between_two_looks_is_seen(platform: Platform, memory_mib: int | None) -> None:
    idle = run(platform, "sleep_quietly", memory_mib=memory_mib)
    ended = run(platform, "peak_between_looks", {"mib": HELD_MIB}, memory_mib=memory_mib)
    assert idle.peak_mib is not None
    assert ended.peak_mib is not None
    assert 0.98 * HELD_MIB <= ended.peak_mib - idle.peak_mib <= 1.1 * HELD_MIB


@pytest.fixture
def statuses(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Resident | None]]:
    """What /proc tells at the next looks, in their order."""
    told: list[Resident | None] = []
    monkeypatch.setattr(footprint.Resident, "of", lambda pid: told.pop(0))
    yield told
    assert not told


def seen(statuses: list[Resident | None], *each: tuple[int, int, int]) -> Footprint:
    """One that began with 100 bytes of its zygote's."""
    statuses += [Resident(*one) for one in each]
    made = Footprint(1, 100, None)
    for _ in each:
        made.look()
    return made


def test_the_mark_tells_what_was_there_between_looks(statuses: list[Resident | None]) -> None:
    assert seen(statuses, (300, 300, 150), (700, 320, 160)).most_bytes(0) == 60 + 380


def test_pages_of_files_are_nobodys_need(statuses: list[Resident | None]) -> None:
    """The mark rises with them; also if they are gone at the next look."""
    assert seen(statuses, (300, 300, 150), (900, 900, 150)).most_bytes(0) == 50
    assert seen(statuses, (900, 900, 150), (950, 300, 160)).most_bytes(0) == 60 + 40


def test_what_a_function_says_as_it_ends_counts(statuses: list[Resident | None]) -> None:
    made = seen(statuses, (300, 300, 150))
    made.told(Resident(most=900, now=800, anonymous=450))
    assert made.most_bytes(900) == 350 + 100
    assert made.most_bytes(950) == 350 + 150


def test_a_process_that_is_gone_is_passed_over(statuses: list[Resident | None]) -> None:
    made = seen(statuses, (300, 300, 150))
    statuses.append(None)
    made.look()
    assert made.most_bytes(0) == 50


@pytest.mark.parametrize(
    ("version", "usage"), [(1, "memory.usage_in_bytes"), (2, "memory.current")]
)
def test_what_a_cgroup_keeps_is_without_pages_of_files(
    version: int, usage: str, tmp_path: Path
) -> None:
    (tmp_path / usage).write_text("1000\n")
    stat = "anon 5\ninactive_anon 1\nactive_anon 2\ninactive_file 300\nactive_file 200\n"
    (tmp_path / "memory.stat").write_text(stat)
    assert Cgroup(Controller(version, tmp_path.parent), tmp_path).kept_bytes() == 500
