"""How busy a GPU is: what nvidia-smi says, and its mean over an epoch. No GPU is needed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch

from dayfly.runs.gpu_watch import GpuWatch, utilisation_in


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("37\n", 0.37),
        ("0\n", 0.0),
        ("100 %\n", 1.0),
        ("[N/A]\n", None),
        ("[Not Supported]", None),
        ("", None),
        ("No devices were found\n", None),
    ],
)
def test_what_nvidia_smi_says_of_a_gpu(text: str, share: float | None) -> None:
    assert utilisation_in(text) == share


def test_an_epoch_has_the_mean_of_what_was_seen_in_it() -> None:
    said: Iterator[float | None] = iter([0.2, 0.4, 0.9, None])
    with GpuWatch(torch.device("cuda:0"), lambda: next(said), 1e-3) as watch:
        thread = watch._thread
        assert thread is not None
        thread.join(5)
        assert not thread.is_alive(), "nobody says more"
        assert watch.take() == pytest.approx(0.5)
        assert watch.take() is None


def test_a_cpu_is_not_asked_about() -> None:
    def ask() -> float:
        raise AssertionError("there is no GPU")

    with GpuWatch(torch.device("cpu"), ask, 0.0) as watch:
        time.sleep(0.01)
        assert watch.take() is None
        assert watch._thread is None
