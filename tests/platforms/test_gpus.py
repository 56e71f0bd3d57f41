"""Which function has which GPU, what it is told of it, and what becomes of too little GPU memory.

No machine of ours has a GPU: the platform is given names of some, and no function touches one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from platform_testing import call, run, wait_for_all

from dayfly.catalogue.gpu import CONTEXT_MIB
from dayfly.errors import RequestError
from dayfly.life.deaths import cause
from dayfly.life.platforms.base import Outcome
from dayfly.life.platforms.gpus import (
    allocator_fraction,
    check_gpus,
    fit_on_one,
    full,
    gpu_of,
    is_gpu_memory_error,
    names,
)
from dayfly.life.platforms.local import LocalPlatform
from dayfly.life.sessions import Session
from dayfly.specs.functions import FunctionSpec

pytestmark = pytest.mark.long

GIB = 2**30


@pytest.fixture(scope="module")
def platform(
    tmp_path_factory: pytest.TempPathFactory, session_base: Path
) -> Iterator[LocalPlatform]:
    """With two GPUs that are not there."""
    with (
        Session.open(session_base) as session,
        LocalPlatform(
            session,
            tmp_path_factory.mktemp("logs"),
            preload=["platform_handlers"],
            gpu_names=["3", "GPU-8f1"],
        ) as made,
    ):
        yield made


def test_functions_spread_over_the_gpus_and_stay() -> None:
    assert [gpu_of(f"worker-{rank}", 2) for rank in range(6)] == [0, 1, 0, 1, 0, 1]
    assert [gpu_of(f"worker-{rank}", 1) for rank in range(3)] == [0, 0, 0]
    assert gpu_of("solo", 3) == gpu_of("solo", 3) < 3


def test_as_many_fit_on_a_gpu_as_the_share_says() -> None:
    shares = (1, 0.6, 0.5, 1 / 3, 0.3, 0.25, 0.1, 1 / 49)
    assert [fit_on_one(share) for share in shares] == [1, 1, 2, 3, 3, 4, 10, 49]


@given(share=st.floats(0.01, 1), gpus=st.integers(1, 5), functions=st.integers(1, 60))
def test_what_is_not_refused_fits(share: float, gpus: int, functions: int) -> None:
    """However they spread, no GPU has more than there is of it."""
    try:
        check_gpus(share, functions, gpus)
    except RequestError:
        assert functions > fit_on_one(share) * gpus
        return
    on_each = Counter(gpu_of(f"worker-{rank}", gpus) for rank in range(functions))
    assert not any(full([share] * count) for count in on_each.values())


def test_what_does_not_fit_is_refused() -> None:
    check_gpus(0.5, 4, 2)
    with pytest.raises(RequestError, match=r"--gpu 0\.5: this machine has no GPU that torch can u"):
        check_gpus(0.5, 1, 0)
    with pytest.raises(
        RequestError,
        match=r"--gpu 0\.4 for 6 functions needs 3 GPUs, and this machine has 2 GPUs: give a share "
        "of at most 1/3, or at most 4 workers",
    ):
        check_gpus(0.4, 6, 2)
    with pytest.raises(RequestError, match="this machine has one GPU"):
        check_gpus(1, 2, 1)


def test_gpus_go_by_the_names_that_this_process_knows_them_by() -> None:
    assert names(2, {}) == ("0", "1")
    assert names(0, {"CUDA_VISIBLE_DEVICES": ""}) == ()
    assert names(2, {"CUDA_VISIBLE_DEVICES": "GPU-8f1, MIG-2"}) == ("GPU-8f1", "MIG-2")
    # CUDA stops at the first that is none.
    assert names(1, {"CUDA_VISIBLE_DEVICES": "5,-1,2"}) == ("5",)


def test_the_share_is_of_all_that_the_process_takes() -> None:
    assert allocator_fraction(1, 16 * GIB) == 1
    assert allocator_fraction(0.5, 16 * GIB) * 16 * GIB + CONTEXT_MIB * 2**20 == 8 * GIB
    with pytest.raises(RuntimeError, match=r"0\.02 of this GPU is 328 MiB") as caught:
        allocator_fraction(0.02, 16 * GIB)
    assert is_gpu_memory_error(caught.value)


def test_errors_of_gpu_memory_are_known() -> None:
    assert is_gpu_memory_error(torch.OutOfMemoryError("no"))
    assert is_gpu_memory_error(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"))
    assert not is_gpu_memory_error(RuntimeError("[enforce fail] can't allocate memory"))
    assert not is_gpu_memory_error(ValueError("CUDA out of memory"))


def test_a_function_sees_its_gpu_and_no_other(platform: LocalPlatform) -> None:
    """The same in each attempt, before CUDA is initialised, and held to its share from then on."""
    functions = [f"worker-{rank}" for rank in range(4)]
    seen = []
    for attempt in range(2):
        for name in functions:
            payload = {"gpu_bytes": 8 * GIB}
            platform.invoke(call(name, "tell_gpu", payload, attempt, gpu_share=0.5))
        ended = wait_for_all(platform, functions)
        seen.append([ended[name].result for name in functions])
    assert seen[0] == seen[1]
    assert [one and one["visible"] for one in seen[0]] == ["3", "GPU-8f1", "3", "GPU-8f1"]
    for one in seen[0]:
        assert one is not None
        assert one["share"] == 0.5
        assert one["told"] == [[0.40625, 0]]  # 4096 MiB of 8192, but for those of CUDA
        assert not one["initialised"]
        assert one["by_nvml"] == "1"


def test_a_function_without_a_share_is_told_nothing(
    platform: LocalPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = run(platform, "tell_gpu", {"gpu_bytes": GIB}).result
    assert found is not None
    assert (found["visible"], found["share"], found["told"]) == (None, None, [])


def test_a_gpu_is_not_given_away_twice(platform: LocalPlatform, tmp_path: Path) -> None:
    waiting = {"until": str(tmp_path / "go")}
    for name in ("worker-0", "worker-2"):
        platform.invoke(call(name, "wait_for_file", waiting, gpu_share=0.5))
    with pytest.raises(RequestError, match=r"worker-4 is to have 0\.1 of GPU 3, but .* have 1 of"):
        platform.invoke(call("worker-4", "echo", gpu_share=0.1))
    platform.invoke(call("worker-1", "echo", gpu_share=1))
    (tmp_path / "go").touch()
    wait_for_all(platform, ["worker-0", "worker-1", "worker-2"])
    platform.invoke(call("worker-4", "echo", gpu_share=1))
    wait_for_all(platform, ["worker-4"])


@pytest.mark.parametrize("wrapped", [False, True])
def test_too_little_gpu_memory_is_an_end_of_its_own(platform: LocalPlatform, wrapped: bool) -> None:
    payload = {"wrapped": wrapped}
    ended = run(platform, "run_out_of_gpu_memory", payload, gpu_share=0.25, memory_mib=900)
    assert ended.outcome is Outcome.OUT_OF_MEMORY
    assert ended.on_gpu
    assert ended.detail.startswith("out of GPU memory: its share is 0.25 of a GPU\n")
    assert "Tried to allocate 2.00 GiB" in ended.detail
    assert "more of a GPU by --gpu" in cause(ended, 3, "3 times in a row")
    assert "--memory" not in cause(ended, 3, "3 times in a row")


def test_without_a_share_it_is_an_error_like_others(platform: LocalPlatform) -> None:
    ended = run(platform, "run_out_of_gpu_memory", memory_mib=900)
    assert ended.outcome is Outcome.RAISED
    assert not ended.on_gpu


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_machine_without_gpus_gives_none(tmp_path: Path, session_base: Path) -> None:
    with (
        Session.open(session_base) as session,
        LocalPlatform(session, tmp_path / "logs") as made,
        pytest.raises(RequestError, match="this machine has no GPU that torch can use"),
    ):
        made.check([FunctionSpec(gpu_share=1)])


@pytest.mark.parametrize("share", [0, -0.5, 1.5, float("nan")])
def test_shares_that_cannot_be(share: float) -> None:
    with pytest.raises(ValueError, match="must be above 0, at most 1"):
        FunctionSpec(gpu_share=share)
