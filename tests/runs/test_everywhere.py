"""`dayfly plan --everywhere`: all places of the catalogue, what each needs, and how sure it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from benchmarks.parts.enumerated.problems import job

from dayfly.catalogue.lookup import Catalogue
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.choose.known import Known, KnownPlans
from dayfly.planning.profile import Affine, Profile
from dayfly.runs.choosing import choice as choosing
from dayfly.runs.choosing.candidate import CLOSED_FORM_ERROR
from dayfly.runs.choosing.candidates import Proposed, proposed
from dayfly.runs.choosing.choice import choice_of, places, where_in_words
from dayfly.runs.choosing.choice_json import tree
from dayfly.runs.choosing.places import every_platform, facts_of_store, lent, needs
from dayfly.runs.choosing.query import PlanQuery
from dayfly.runs.choosing.targets import Target, TargetQuery, targets_of_profiles

KNOWN = Catalogue()


def profiled(seed: int = 3, flops: float = 3e8) -> Profile:
    """A job of random layers, measured under Lambda's limits, with FLOPs."""
    made = job(Random(seed))
    return replace(made, flops=tuple(Affine(0.0, flops) for _ in made.layers), how="measured")


@pytest.fixture(scope="module")
def targets() -> tuple[Target, ...]:
    return targets_of_profiles(
        [profiled()], TargetQuery(everywhere=True, most_workers=4, known=KNOWN)
    )


def test_all_platforms_that_have_prices_are_there_or_named(targets: tuple[Target, ...]) -> None:
    there = {target.platform.name for target in targets}
    left_out = set(every_platform(KNOWN)) - there
    notes = [note for target in targets for note in target.notes]
    assert {"aws-lambda", "fargate", "cloud-run-l4", "vm-c5-large", "vm-c5-large:spot"} <= there
    # A worker computes on one GPU, and these have several. A note names its platform once.
    assert any(note.startswith("vm-p3-8xlarge is left out: it has 4 GPUs") for note in notes)
    assert left_out == {"vm-p3-8xlarge", "vm-p3-8xlarge:spot"}
    for name in left_out:
        assert any(note.startswith(f"{name} is left out: ") for note in notes)
    starts = {target.platform.name: target.profile.sizes[0].init_s.value for target in targets}
    assert min(starts.values()) > 0
    # A machine boots, a task of Fargate has one, and a function is there in a second.
    assert starts["vm-c5-large"] == starts["fargate"] == starts["vm-c5-xlarge"] > 20
    assert starts["aws-lambda-arm"] == KNOWN.platform("aws-lambda").cold_start_s == 1.0
    assert starts["azure-containers-k80"] > starts["cloud-run"] == starts["cloud-run-l4"] > 1
    assert where_in_words(targets) == f"{len(there)} platforms"
    assert len(places(targets)) > 60


def test_how_sure_each_place_is(targets: tuple[Target, ...]) -> None:
    of = {str(target): target for target in targets}
    assert of["aws-lambda over s3"].sure == "measured"  # the profile's own
    assert of["aws-lambda-arm over s3"].sure == "derived"
    assert of["aws-lambda-arm over s3"].derived == (
        "a vCPU as fast as one of aws-lambda",
        "a start of 1 s, as of aws-lambda",
    )
    assert of["cloud-run-l4 over gcs"].derived == (
        "passes by the published figures of the L4",
        "bandwidth of aws-lambda",
        "latency of s3",
    )


def test_what_no_row_says_is_lent_and_said() -> None:
    fargate, machine = KNOWN.platform("fargate"), KNOWN.platform("vm-p2-xlarge:spot")
    values, words = lent(fargate, KNOWN.store("s3"), KNOWN)
    assert values == {
        "vcpu_flops_per_s": 38.5e9,
        "up_bytes_per_s": 70e6,
        "down_bytes_per_s": 70e6,
    }
    assert words == ("a vCPU as fast as one of aws-lambda", "bandwidth of aws-lambda")
    values, words = lent(machine, facts_of_store(machine, "tcp://", KNOWN), KNOWN)
    assert values == {"up_bytes_per_s": 93.75e6, "down_bytes_per_s": 93.75e6, "latency_s": 0.001}
    assert words == ("bandwidth of vm-m5-large", "latency of vm-m5-large")
    lambda_ = KNOWN.platform("aws-lambda")
    assert lent(lambda_, KNOWN.store("s3"), KNOWN) == ({}, ())


@pytest.mark.parametrize(
    ("name", "store", "workers", "brought", "words"),
    [
        (
            "aws-lambda",
            "s3",
            8,
            False,
            "an account at AWS; a package that starts functions on aws-lambda (none is here); a "
            "bucket in S3",
        ),
        ("aws-lambda", "s3", 8, True, "an account at AWS; a bucket in S3"),
        (
            "fargate",
            "vm-m5-large:2",
            8,
            True,
            "an account at AWS; 2 vm-m5-large as parameter server",
        ),
        (
            "vm-nc6",
            "tcp://",
            1,
            False,
            "an account at Azure; one machine, with dayfly and the job on it",
        ),
        (
            "vm-c5-large:spot",
            "tcp://",
            4,
            False,
            "an account at AWS; spot machines that reach each other; a package that starts "
            "workers on them (none is here); run checkpoints, from which it goes on after "
            "an interruption",
        ),
    ],
)
def test_what_a_place_needs(
    name: str, store: str, workers: int, *, brought: bool, words: str
) -> None:
    assert needs(KNOWN.platform(name), store, workers, brought=brought) == words


def test_what_is_spared_is_nothing_of_the_front(targets: tuple[Target, ...]) -> None:
    """Each place searched by itself has the front that all of them together have."""
    asked, few = PlanQuery(workers=4), targets[::6]
    nothing = KnownPlans(Known(math.inf), Known(math.inf))  # which never beats anything
    alone = [proposed(target, asked, time_limit_s=60.0, known=nothing) for target in few]
    together = choosing._proposed(
        few, asked, KnownPlans(Known(CLOSED_FORM_ERROR), Known(CLOSED_FORM_ERROR)), ways=1
    )
    assert front_of(together) == front_of(alone)
    counts = [sum(len(one.candidates) for one in found) for found in (together, alone)]
    assert counts[0] < counts[1] / 4


def front_of(found: Sequence[Proposed]) -> list[tuple[float, float]]:
    """Seconds and dollars of the front of all candidates."""
    points = [Point(one.seconds, one.usd, None) for of in found for one in of.candidates]
    return [(point.seconds, point.usd) for point in Front.of(points).points]


def test_each_plan_of_the_front_says_what_it_needs(targets: tuple[Target, ...]) -> None:
    choice = choice_of(targets[::20], PlanQuery(workers=4))
    for point in tree(choice)["front"]:
        assert point["sure"] in ("measured", "derived", "published")
        assert point["needs"].startswith("an account ")
