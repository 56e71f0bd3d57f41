"""`--shares auto`: both roles of hap end a step together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dayfly
from dayfly.errors import RequestError
from dayfly.planning.profile import Affine, Profile, profile_text
from dayfly.runs.even_shares import even_shares, settled
from dayfly.runs.plans import JobSpec
from dayfly.runs.settings import Settings
from tests.planning.by_hand import layer, profile, size
from tests.runs import small

HAP: dict[str, Any] = {"workers": 3, "sync": "hap", "aggregators": 1}


def known(**more: Any) -> Profile:
    """1 MB of gradients over 10 MB/s, and 3 ms a sample."""
    return profile([layer("a", 250_000)], size(1, None, **more))


def test_the_others_have_as_many_samples_more_as_summing_takes() -> None:
    """A lone aggregator takes 0.1 s more: 2 parts down and a sum up, beside a part up and a sum
    down. With 44 samples for each of the others and 12 for it they compute 96 ms longer, with 45
    and 10 it would be 105."""
    found = even_shares(known(), Settings(**HAP), JobSpec(batch_size=100))
    assert found == (3, 11, 11)


def test_memory_bounds_the_samples_of_the_others() -> None:
    """A sample takes 16 MB of the pass and what it passes on: 1000 MiB hold 38 of them."""
    made = profile([layer("a", 250_000, passed=4e6)], size(1, 1000))
    found = even_shares(made, Settings(**HAP, memory_mib=1000), JobSpec(batch_size=100))
    assert found == (12, 19, 19)


def test_aggregators_are_standalone_where_all_is_computed_while_they_sum() -> None:
    """A quarter of a millisecond a sample: the others compute 50 each in 12.5 ms, and a lone
    aggregator takes 0.1 s more."""
    quick = known(forward=(Affine(0.0, 0.25e-3),), backward=(Affine(0.0, 0.0),))
    found = even_shares(quick, Settings(**HAP), JobSpec(batch_size=100))
    assert found == (0, 1, 1)


def test_equal_rounds_need_no_shares() -> None:
    """A sample takes so long that none more fits into the time of summing."""
    slow = known(forward=(Affine(0.0, 10.0),))
    assert even_shares(slow, Settings(**HAP), JobSpec(batch_size=99)) == ()


def test_a_file_of_a_profile_settles_them_and_a_plan_keeps_them(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    file.write_text(profile_text(known()))
    given = {**HAP, "shares": "auto"}
    job = small.job(data, batch_size=100)
    assert settled(given, job, "small", None, file)["shares"] == (3, 11, 11)
    plan = dayfly.predict(file, batch_size=100, **given)
    assert plan.settings["shares"] == [3, 11, 11]


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"workers": 3, "shares": "auto"}, "is for --sync hap"),
        ({**HAP, "shares": "auto", "each_memory_mib": (512, 512, 512)}, "of one memory size"),
        ({**HAP, "shares": (1, 1, 2)}, "--profile is for shares that follow from it"),
    ],
)
def test_what_cannot_be_settled_is_refused(given: dict[str, Any], what: str, data: Path) -> None:
    with pytest.raises(RequestError, match=what):
        settled(given, small.job(data), "small", None, known())


def test_without_a_profile_they_are_refused() -> None:
    with pytest.raises(RequestError, match="needs a profile of the job"):
        Settings(**HAP, shares="auto")
