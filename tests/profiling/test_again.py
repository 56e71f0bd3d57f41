"""What is in doubt is measured again, so many times at most, and the better measurement stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dayfly.planning.conditions import Conditions
from dayfly.planning.profile import Affine, SizeProfile
from dayfly.runs.profiling.again import measured_again
from dayfly.runs.profiling.neighbours import TooSmall
from tests.planning.by_hand import size


def made(memory_mib: int, cpu: float, pass_s: float, **watched: float) -> SizeProfile:
    half = Affine(pass_s / 2, 0.0)
    more = {"forward": (half,), "backward": (half,), "cpu_cores": cpu}
    return size(1, memory_mib, conditions=Conditions(**watched), **more)  # type: ignore[arg-type]


def again(
    first: Sequence[SizeProfile], *later: Sequence[SizeProfile], most: int = 3
) -> tuple[list[SizeProfile], list[str]]:
    """later: what each size's further measurements give."""
    noted: list[str] = []

    def measure(left: list[SizeProfile]) -> Callable[[], SizeProfile]:
        def once() -> SizeProfile:
            if not left:
                raise TooSmall("there is no more")
            return left.pop(0)

        return once

    measures = [measure(list(one)) for one in later]
    found = measured_again(first, measures, cores=2, most=most, note=noted.append)
    return found, noted


def test_a_quiet_measurement_is_made_once() -> None:
    quiet = made(512, 0.5, 2.0, stolen=0.01)
    (found,), noted = again([quiet], [])
    assert found.conditions is not None
    assert (found, noted, found.conditions.attempts) == (quiet, [], 1)


def test_the_quiet_one_of_two_counts_though_it_is_slower() -> None:
    (found,), noted = again([made(512, 0.5, 2.0, stolen=0.3)], [made(512, 0.5, 2.1, stolen=0.0)])
    assert found.forward[0].fixed == 1.05
    assert found.conditions is not None
    assert (found.conditions.doubts, found.conditions.attempts) == ((), 2)
    assert len(noted) == 1
    assert noted[0].endswith("measuring them again")


def test_slower_with_more_cpu_is_measured_again() -> None:
    found, _ = again([made(512, 0.5, 2.0), made(1024, 1.0, 2.3)], [], [made(1024, 1.0, 1.1)])
    assert [one.forward[0].fixed for one in found] == [1.0, 0.55]
    assert [one.conditions.attempts for one in found if one.conditions] == [1, 2]


def test_what_stays_is_said_after_so_many_times() -> None:
    loud = made(512, 0.5, 2.0, other_cores=0.74)
    (found,), noted = again([loud], [loud] * 9)
    assert found.conditions is not None
    assert found.conditions.attempts == 3
    assert found.conditions.doubts == (
        "other processes used 0.74 of 2 cores while functions of 512 MiB were measured",
    )
    assert noted[-1].endswith("the profile says so, and predictions will")
    # Memory that ran out the second time does not end the profile.
    (same,), _ = again([loud], [])
    assert same.conditions == found.conditions


def test_what_nobody_watched_is_left_alone() -> None:
    sizes = [size(1, 512, cpu_cores=0.5), size(1, 1024, cpu_cores=1.0)]
    assert again(sizes, [], [])[0] == sizes
