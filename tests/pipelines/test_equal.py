"""Every cut of a model trains what the uncut one trains: losses, gradients, weights, buffers.

The reference is plain PyTorch in one process with the same micro-batches (by_hand.py); the pipeline
is the product's (trained.py). All in float64, to 1e-9: 1x2, 2x2 and 1x4 replicas
and stages, both schedules, as in memory and as over a link. The last batch is ragged.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest

from dayfly.wire.channels.files import FileChannel
from dayfly.wire.collectives.conformance_world import LinkedChannel as Distant
from dayfly.wire.pipelines.orders import ORDERS
from tests.pipelines import nets
from tests.pipelines.case import Case, score
from tests.training.jobs import one_thread

pytestmark = pytest.mark.long

KINDS = (FileChannel, Distant)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture(scope="module")
def cnn() -> Case:
    job = nets.job_of(nets.cnn, batch_size=16, metrics={"score": score})
    return Case.of(job, nets.images(23, 1, 4), nets.images(9, 1, 4, seed=1), micro_batches=3)


@pytest.fixture(scope="module")
def gpt() -> Case:
    job = nets.job_of(nets.small_gpt, optimizer=nets.adamw, batch_size=16, metrics={"score": score})
    return Case.of(job, nets.texts(23), nets.texts(9, seed=1), micro_batches=3)


@pytest.fixture(scope="module")
def cells() -> Case:
    # Two samples in a micro-batch at least: statistics of few values make much of little.
    job = nets.job_of(nets.cells, batch_size=11, metrics={"score": score})
    return Case.of(job, nets.images(20, 3, 64), nets.images(5, 3, 64, seed=1), micro_batches=2)


@pytest.mark.parametrize(
    # Each cut is over both channels, by both schedules and with both numbers of replicas; not by
    # each schedule over each channel with each number.
    "turn",
    [0, pytest.param(1, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("schedule", ORDERS)
@pytest.mark.parametrize("replicas", [1, 2], ids=["1x2", "2x2"])
@pytest.mark.parametrize("name", ["cnn", "gpt"])
def test_two_stages_cut_anywhere(
    name: str, replicas: int, schedule: str, turn: int, request: pytest.FixtureRequest
) -> None:
    case: Case = request.getfixturevalue(name)
    for index in range(1, len(case.forms) + 1):
        kind = KINDS[(index + replicas + list(ORDERS).index(schedule) + turn) % 2]
        case.check([index], replicas, schedule, kind)


@pytest.mark.parametrize("schedule", ORDERS)
@pytest.mark.parametrize(
    "replicas",
    # Replicas are summed for cells as for the GPT, whose stages pass several tensors, too.
    [1, pytest.param(2, marks=pytest.mark.slow)],
    ids=["1x2", "2x2"],
)
def test_two_stages_of_cells_cut_anywhere(replicas: int, schedule: str, cells: Case) -> None:
    """As they take longer, each cut by one of the schedules, over the channels in turns."""
    cuts = range(1, len(cells.forms) + 1)[list(ORDERS).index(schedule) :: 2]
    for turn, index in enumerate(cuts):
        cells.check([index], replicas, schedule, KINDS[turn % 2])


@pytest.mark.parametrize("schedule", ORDERS)
@pytest.mark.parametrize(
    ("name", "every"),
    [
        pytest.param("cnn", 3, marks=pytest.mark.slow),
        ("gpt", 2),
        # Cells are cut into two anywhere, above; in four they pass what they pass in two.
        pytest.param("cells", 8, marks=pytest.mark.slow),
    ],
)
def test_four_stages(name: str, every: int, schedule: str, request: pytest.FixtureRequest) -> None:
    """Half of the GPT's cuts, a third of the CNN's 84, seven of the cells' 56 by each schedule."""
    case: Case = request.getfixturevalue(name)
    cuts = list(combinations(range(1, len(case.forms) + 1), 3))
    for turn, cut in enumerate(cuts[list(ORDERS).index(schedule) :: every]):
        case.check(cut, 1, schedule, KINDS[turn % 2])


@pytest.mark.quick
@pytest.mark.parametrize("schedule", ORDERS)
def test_a_stage_each_layer(schedule: str, cnn: Case) -> None:
    cnn.check(range(1, len(cnn.forms) + 1), 1, schedule)
