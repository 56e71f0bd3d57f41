"""Runs whose samples come from processes, or from streams: the same bits, also after deaths."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

import dayfly
from dayfly.life.faults import Fault
from tests.runs import small


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(3)
    y = random.integers(0, 5, 120)
    x = random.normal(size=(5, 12))[y] + 0.7 * random.normal(size=(120, 12))
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


class Points(Dataset):  # type: ignore[type-arg]
    def __init__(self) -> None:
        self.x, self.y = samples()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return small.noisy(self.x[index]), self.y[index]


class Stream(IterableDataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 120

    def __iter__(self) -> Iterator[Any]:
        for x, y in zip(*samples(), strict=True):
            yield small.noisy(x), y


def points() -> Any:
    return Points(), Points()


def streams() -> Any:
    return Stream(), Stream()


def train(directory: Path, data: Any, workers: int, num_workers: int, **more: Any) -> dayfly.Run:
    given = {"transform": None, "model": small.plain_model, "num_workers": num_workers}
    asked = small.job(data, **given)
    return dayfly.train(asked, workers=workers, run_dir=directory, **{**small.SETTINGS, **more})


FAULTS = [Fault(1, 2, "compute"), Fault(0, 7, "applied")]


@pytest.mark.long
@pytest.mark.quick
def test_bits_do_not_depend_on_num_workers_nor_on_deaths(tmp_path: Path) -> None:
    plain = train(tmp_path / "plain", points, 2, 0)
    decoded = train(tmp_path / "decoded", points, 2, 2, faults=FAULTS)
    assert decoded.result.restarts == len(FAULTS)
    assert small.bits(decoded) == small.bits(plain)


@pytest.mark.long
def test_a_stream_trains_as_one_process_would(tmp_path: Path) -> None:
    two = train(tmp_path / "two", streams, 2, 0)
    again = train(tmp_path / "again", streams, 2, 1, faults=FAULTS)
    assert again.result.restarts == len(FAULTS)
    assert small.bits(again) == small.bits(two)
    one = train(tmp_path / "one", streams, 1, 0)
    for record, other in zip(one.history, two.history, strict=True):
        assert record["train_loss"] == pytest.approx(other["train_loss"], rel=1e-4)
    found = two.test(workers=2, progress=False)
    assert found["loss"] == two.history[-1]["val_loss"]
