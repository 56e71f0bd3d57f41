"""The two ends of a cut model read samples while they wait, and train what the uncut one does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from torch import nn

from tests.pipelines import nets
from tests.pipelines.case import Case
from tests.training.jobs import Pairs, one_thread

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


class Noted(Pairs):
    """Notes the threads that read ahead."""

    def __init__(self, pairs: Pairs) -> None:
        super().__init__(pairs.x, pairs.y)
        self.readers: set[int] = set()

    def __getitem__(self, index: int) -> Any:
        if threading.current_thread().name == "dayfly-ahead":
            self.readers.add(threading.get_ident())
        return super().__getitem__(index)


class Slow(nn.Module):
    """Takes its time, in which the other stage waits."""

    def forward(self, x: Any) -> Any:
        time.sleep(0.01)
        return x


def slow_cnn() -> nn.Sequential:
    return nn.Sequential(*nets.cnn(), Slow())


def test_both_ends_read_while_they_wait() -> None:
    job = nets.job_of(slow_cnn, batch_size=16)
    data = Noted(nets.images(23, 1, 4))
    case = Case.of(job, data, nets.images(9, 1, 4, seed=1), micro_batches=3, steps=4)
    assert not data.readers
    case.check((1,), 1, "1f1b")
    assert len(data.readers) == 2, "of the first stage, and of the last"
