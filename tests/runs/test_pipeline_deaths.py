"""Workers of a cut model's stages die at any place; the bits are those of the undisturbed run."""

from __future__ import annotations

from pathlib import Path

import pytest

from dayfly.runs.stage_checks import Replicas
from tests.runs import small, staged
from tests.runs.staged import Undisturbed

pytestmark = pytest.mark.long

PARTS = 6
#: Stages with peers beside a stage without: of the latter a successor computes all again from
#: what its neighbours sent, of the former it reads sums.
UNEVEN = (3, 1, 2)
#: Replicas and parts that the suite runs: workers with peers in their stage, and one without.
SOON = {(UNEVEN, 4)}


@pytest.mark.parametrize(
    ("replicas", "part"),
    [
        pytest.param(replicas, part, marks=() if (replicas, part) in SOON else pytest.mark.slow)
        for replicas in (1, 2, UNEVEN)
        for part in range(PARTS)
    ],
)
def test_deaths_at_every_place_of_every_stage(
    replicas: Replicas, part: int, data: Path, undisturbed_stages: Undisturbed, tmp_path: Path
) -> None:
    reference = undisturbed_stages(replicas)
    all_faults = staged.faults_everywhere(replicas, staged.checkpoint_steps(reference))
    faults = list(staged.dealt(all_faults, PARTS))[part]

    run = staged.train(data, tmp_path, replicas, faults=faults)

    assert run.result.restarts == len(faults), "every planned death happened, once"
    assert small.history(run)["rollbacks"] == 0
    assert small.bits(run) == small.bits(reference)
    assert not staged.redone_by_peers(run, faults, replicas)
