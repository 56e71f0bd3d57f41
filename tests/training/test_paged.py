"""Large tensors in files: the same bits, little memory, nothing left behind."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from dayfly.errors import RequestError
from dayfly.training import paged as paging
from dayfly.training.paged import paged
from dayfly.training.replica import Replica
from dayfly.training.stages.probe import check_stages
from tests.stages.models import cnn, images, job_of, recurrent, tokens
from tests.training.jobs import bits

MIB = 2**20


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def mappings(directory: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(directory))


@pytest.mark.parametrize(
    ("model", "samples", "cut"),
    [(cnn, images(), [2, 5]), (recurrent, tokens(), [2])],
)
@pytest.mark.long
def test_trying_a_cut_gives_the_same_in_files(
    model: Callable[[], nn.Module],
    samples: list[tuple[torch.Tensor, torch.Tensor]],
    cut: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every tensor is moved here: first weights, gradients, the optimizer's state."""

    def tried() -> tuple[object, dict[str, bytes]]:
        job = job_of(model)
        replica = Replica(job)
        forms = check_stages(job, replica.model, cut, samples)
        x, y = (torch.stack(column) for column in zip(*samples, strict=True))
        for _ in range(2):
            replica.model.zero_grad()
            torch.manual_seed(1)
            job.loss(replica.model(x), y).backward()  # type: ignore[misc]
            replica.step()
        return [form.to_json() for form in forms], bits(replica.model)

    expected = tried()
    monkeypatch.setattr(paging, "LARGE_BYTES", 1)
    monkeypatch.setattr(paging, "RESIDENT_BYTES", 2**16)
    with paged(tmp_path, when=True):
        assert tried() == expected


def test_memory_holds_what_is_in_use(tmp_path: Path) -> None:
    count, each = 10, 16 * MIB
    before = resident_mib()
    with paged(tmp_path, when=True):
        kept = [torch.full((each // 4,), float(number)) * 2 for number in range(count)]
        most = max(resident_mib() for tensor in kept if tensor.sum() >= 0)
    allowed = (paging.RESIDENT_BYTES + 4 * each) / MIB
    assert most - before < allowed < count * each / MIB
    assert [float(tensor[-1]) for tensor in kept] == [2.0 * number for number in range(count)]


def test_files_go_with_their_tensors(tmp_path: Path) -> None:
    with paged(tmp_path, when=True):
        one = torch.zeros(MIB)
        view = one[: MIB // 2]
        del one
        assert mappings(tmp_path) == 1
        assert list(tmp_path.iterdir()) == []
    assert view.sum() == 0
    del view
    assert mappings(tmp_path) == 0


def test_small_tensors_and_those_of_before_stay(tmp_path: Path) -> None:
    before = torch.ones(MIB)
    with paged(tmp_path, when=True):
        small, same = torch.ones(10), before.view(-1)
        before.add_(1)
        assert mappings(tmp_path) == 0
    with paged(tmp_path, when=False):
        large = torch.ones(MIB)
        assert mappings(tmp_path) == 0
    assert float(small.sum() + same[0] + large[0]) == 13


def test_no_room_is_said(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, before[1]))
    try:
        with paged(tmp_path, when=True), pytest.raises(RequestError) as refused:
            torch.ones(MIB)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(refused.value) == (
        f"no 4194304 bytes in {tmp_path} for a tensor of the whole model, as a cut one is tried "
        "from files, several times its parameters: File too large: make room"
    )
