"""What virtual workers take: pieces one after another, gradients kept apart, nodes on the wire."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError
from dayfly.planning.configuration import Configuration
from dayfly.planning.memory import holding
from dayfly.planning.plan import Prediction
from dayfly.planning.predict import predict
from dayfly.wire.collectives.leaves import nodes_of
from tests.planning.by_hand import layer, profile, size

AWS = Catalogue().platform("aws-lambda")
#: 0.9 MB; adding a contribution takes a tenth of the time of its way.
LAYERS = (layer("a", 25_000, moving=10), layer("b", 200_000))
KNOWN = profile(LAYERS, size(2, reduce_s_per_byte=1e-8))


def asked(**more: Any) -> Configuration:
    values = {"workers": 2, "memory_mib": (1024,), "batch_size": 96, **more}
    return Configuration(**values)


def predicted(**more: Any) -> Prediction:
    return predict(KNOWN, asked(**more), AWS)


def test_leaves_are_kept_apart_and_computed_one_by_one() -> None:
    plain = holding(KNOWN, asked(), 0)
    for workers, leaves, kept in ((2, 2, 0), (2, 4, 1), (2, 8, 2), (1, 8, 3), (2, 7, 2)):
        has = holding(KNOWN, asked(workers=workers, virtual_workers=leaves), 0)
        assert has.leaves == kept * plain.gradients, (workers, leaves)
        assert has.gradients == plain.gradients
    pieces = holding(KNOWN, asked(micro_batches=4), 0)
    apart = holding(KNOWN, asked(virtual_workers=8), 0)
    assert (apart.activations, apart.work) == (pieces.activations, pieces.work)
    grows_mib = predicted(virtual_workers=8).memory_mib[0] - predicted().memory_mib[0]
    assert grows_mib == pytest.approx(
        (apart.leaves - plain.activations - plain.work + apart.activations + apart.work) / 2**20,
        abs=0.01,
    )


def test_as_many_leaves_as_workers_take_what_none_take() -> None:
    for workers in (1, 2, 5):
        plain = predicted(workers=workers)
        apart = predicted(workers=workers, virtual_workers=workers)
        assert apart.step_s == pytest.approx(plain.step_s)
        assert apart.step_volume == plain.step_volume


def test_contributions_are_as_many_as_nodes() -> None:
    """Over scatter-reduce each of three workers sends two thirds of each of its nodes."""
    plain = predicted(workers=3, collective="scatter-reduce")
    for leaves in (3, 6, 7, 12, 13):
        nodes = sum(map(len, nodes_of(3, leaves)))
        found = predicted(workers=3, virtual_workers=leaves, collective="scatter-reduce")
        more = (nodes - 3) * 2 * 2  # messages of two buckets
        assert found.step_volume.puts == plain.step_volume.puts + more, leaves
        assert found.step_volume.gets == plain.step_volume.gets + more


@pytest.mark.parametrize("most_simulated", [64, 1])
def test_copies_and_additions_take_time(most_simulated: int) -> None:
    """Two workers with four leaves: three additions and two copies of the whole buffer each."""
    apart = asked(virtual_workers=8)
    slow = predict(KNOWN, apart, AWS, most_simulated=most_simulated).step_s
    free = replace(KNOWN, sizes=(size(2),))
    fast = predict(free, apart, AWS, most_simulated=most_simulated).step_s
    plain = [
        predict(made, asked(micro_batches=4), AWS, most_simulated=most_simulated).step_s
        for made in (KNOWN, free)
    ]
    whole_s = 5 * 1e-8 * holding(KNOWN, apart, 0).gradients
    assert slow - fast - (plain[0] - plain[1]) == pytest.approx(whole_s, rel=0.05)


def staged(**more: Any) -> Configuration:
    """Two stages in two replicas of four micro-batches."""
    given = {"workers": 4, "cut": (1,), "replicas": 2, "memory_mib": (1024, 1024)}
    return asked(**{**given, "micro_batches": 4, **more})


@pytest.mark.parametrize("most_simulated", [64, 1])
def test_leaves_of_a_cut_model_are_its_micro_batches(most_simulated: int) -> None:
    """Eight leaves take what micro-batches do, and three additions and two copies of a stage."""

    def step_s(known: Any, c: Configuration) -> float:
        return predict(known, c, AWS, most_simulated=most_simulated).step_s

    free = replace(KNOWN, sizes=(size(2),))
    apart = staged(virtual_workers=8)
    assert step_s(free, apart) == pytest.approx(step_s(free, staged()))
    most = max(holding(KNOWN, staged(), stage).gradients for stage in (0, 1))
    more_s = step_s(KNOWN, apart) - step_s(KNOWN, staged())
    assert 0 < more_s == pytest.approx(5 * 1e-8 * most, rel=0.25)
    for stage in (0, 1):
        has = holding(KNOWN, apart, stage)
        assert has.leaves == 2 * has.gradients
        assert has.activations == holding(KNOWN, staged(), stage).activations


def test_what_cannot_run_is_not_predicted() -> None:
    for more, said in (
        ({"virtual_workers": 97}, "a batch of 96 cannot be shared by 97 virtual workers"),
        ({"virtual_workers": 1}, "--virtual-workers 1 cannot be shared by 2 workers"),
        ({"virtual_workers": 4, "collective": "ring"}, "cannot have --collective ring"),
    ):
        with pytest.raises(RequestError, match=said):
            predicted(**more)
