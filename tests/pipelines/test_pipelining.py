"""What workers are told of a cut model: their micro-batches, and how large messages are to be."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayfly.batches import MicroBatch, micro_batches
from dayfly.dataclass_json import dump, read
from dayfly.runs.pipelining import Pipelining
from dayfly.runs.staging import step_bytes
from dayfly.training.order import share
from dayfly.training.stages.forms import BoundaryForm, TensorForm
from dayfly.wire.pipelines.step import worthwhile_bytes
from dayfly.wire.shaping import Rates


@given(st.integers(1, 200), st.integers(1, 6), st.integers(1, 9))
def test_micro_batches_are_all_of_a_batch(samples: int, replicas: int, parts: int) -> None:
    every = [micro_batches(samples, one, replicas, parts) for one in range(replicas)]
    assert sum(micro.samples for micros in every for micro in micros) == samples
    for replica, micros in enumerate(every):
        assert all(micro.samples > 0 for micro in micros)
        assert sum(micro.samples for micro in micros) == len(share(samples, replica, replicas))


def test_a_share_that_is_smaller_than_its_parts() -> None:
    assert micro_batches(2, 0, 1, 4) == (MicroBatch(1, 1), MicroBatch(3, 1))
    assert micro_batches(1, 0, 2, 4) == ()


def test_a_replica_brings_each_of_its_nodes_to_its_stages_sum() -> None:
    """Of 22 virtual workers three replicas have 7, 7 and 8, which are 3, 3 and 2 nodes."""
    form = BoundaryForm(TensorForm(torch.float32, (1,), (True,), gradient=True))
    plain = Pipelining(
        cut=(1,), replicas=3, micro_batches=8, schedule="1f1b", forms=(form,), chunk_bytes=0
    )
    few = step_bytes(plain, 22 * 3, [10**6, 10**6])
    many = step_bytes(replace(plain, virtual_workers=22), 22 * 3, [10**6, 10**6])
    assert many.sent - few.sent == pytest.approx(2 * 10**6, rel=1e-3)
    assert many.passing - few.passing == pytest.approx(2 * 2 * 10**6 * (8 - 3) / 3, rel=1e-3)
    assert (many.kept, many.summed) == (few.kept, few.summed)


def test_messages_keep_a_way_with_latency_busy() -> None:
    """70 MB/s times 40 ms is 2.8 MB under way, in 8 requests, and as much that follows."""
    lambdas = Rates(up_bytes_per_s=70e6, down_bytes_per_s=50e6, latency_s=0.04)
    assert worthwhile_bytes([lambdas, None, Rates(up_bytes_per_s=1e9)], in_flight=8) == 700_000
    assert worthwhile_bytes([None], in_flight=8) == 0
    assert worthwhile_bytes([Rates(latency_s=0.04)], in_flight=8) == 0


def test_what_a_worker_is_told_travels_as_json() -> None:
    form = BoundaryForm(TensorForm(torch.float32, (1, 8), (True, False), True))
    line = Pipelining(
        cut=(4,), replicas=2, micro_batches=3, schedule="1f1b", forms=(form,), chunk_bytes=9
    )
    assert read(Pipelining, json.loads(json.dumps(dump(line))), "p") == line
