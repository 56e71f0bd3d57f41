"""Runs on files as they come: the same bits with deaths and after a resume, whatever the form."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dayfly
from dayfly.errors import RequestError
from tests.data.test_placed import folder
from tests.runs import small

pytestmark = pytest.mark.long


def turned(image: Any) -> Any:
    """Draws where a sample is turned to, so that it shows if one is seeded otherwise."""
    return image.rotate(int(torch.randint(4, ()).item()) * 90)


def model() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 6 * 6, 3))


def job(root: Path, **more: Any) -> dayfly.Job:
    given: dict[str, Any] = {
        "model": model,
        "data": dayfly.data.images(root, size=(6, 6)),
        "loss": nn.functional.cross_entropy,
        "optimizer": small.sgd,
        "batch_size": 8,
        "epochs": 2,
        "transform": turned,
    }
    return dayfly.Job(**given | more)


def test_images_with_deaths_and_more_epochs(tmp_path: Path) -> None:
    root = folder(tmp_path / "photos")
    small.check_deaths_and_more_epochs(partial(job, root), tmp_path, 5)
    (root / "c1" / "00.png").write_bytes((root / "c2" / "00.png").read_bytes())
    with pytest.raises(RequestError, match=r"the data .*images.* differ from those that the run"):
        dayfly.resume(tmp_path / "b", epochs=4, progress=False)


def test_images_of_their_own_sizes_need_a_transform(tmp_path: Path) -> None:
    root = folder(tmp_path / "photos", sizes=lambda one: (6 + one, 6))
    with pytest.raises(RequestError, match=r"have different sizes, and the job has no transform"):
        dayfly.train(job(root, data=root, transform=None), run_dir=tmp_path / "a", progress=False)


def test_a_table_trains_as_its_arrays_do(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4)).round(3).astype(np.float32)
    y = rng.integers(0, 3, 60)
    lines = ["a,b,c,d,label"]
    lines += [",".join([*(f"{v:.3f}" for v in row), str(k)]) for row, k in zip(x, y, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    np.savez(tmp_path / "t.npz", x_train=x, y_train=y)
    bits = []
    for name in ("t.csv", "t.npz"):
        some = job(tmp_path / name, data=str(tmp_path / name), transform=None)
        some = dayfly.Job(**{**vars(some), "model": lambda: nn.Linear(4, 3)})
        bits.append(
            small.bits(dayfly.train(some, run_dir=tmp_path / f"{name}-run", progress=False))
        )
    assert bits[0] == bits[1]
