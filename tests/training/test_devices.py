"""A model elsewhere than on the CPU trains to the same bits, with wire and checkpoints on the CPU.

No machine of ours has a GPU, so it is a device of the tests' own (`far_device.py`), in a process of
its own. What is CUDA's alone, streams and events, is not tried here; `Late` stands for them.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from dayfly.errors import RunFailed
from dayfly.training import flat as flat_module
from dayfly.training.devices import CPU, device_of, device_of_function, to_device, to_wire
from dayfly.training.flat import Apart, FlatBuffer, Mirror, mirror
from dayfly.wire.schedule import Span

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
CASES = [
    node.name
    for node in ast.parse(Path(__file__).with_name("far_cases.py").read_text()).body
    if isinstance(node, ast.FunctionDef)
    and any(isinstance(one, ast.Name) and one.id == "case" for one in node.decorator_list)
]


@pytest.fixture(scope="module")
def found() -> dict[str, str | None]:
    """The traceback of each case, or None."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.far_cases"],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    traces: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return traces


@pytest.mark.parametrize("name", CASES)
def test_far(name: str, found: dict[str, str | None]) -> None:
    assert found[name] is None, found[name]


def test_there_are_cases() -> None:
    assert len(CASES) >= 10


class Late(Apart):
    """Copies of which none has arrived before it is waited for, as of a GPU that is far behind."""

    def __init__(self, size: int, dtype: torch.dtype) -> None:
        super().__init__(size, dtype, CPU)
        self.under_way: list[tuple[Span, torch.Tensor] | None] = []
        self.log: list[str] = []

    def begin(self) -> None:
        self.under_way.clear()

    def out(self, span: Span) -> None:
        self.log.append(f"out {len(self.under_way)}")
        self.under_way.append((span, self.there[span.start : span.stop].clone()))

    def arrived(self, number: int) -> bool:
        return self.under_way[number] is None

    def wait(self, number: int) -> None:
        self.log.append(f"wait {number}")
        going = self.under_way[number]
        assert going is not None
        span, values = going
        self.here[span.start : span.stop].copy_(values)
        self.under_way[number] = None


def test_a_bucket_is_announced_when_it_has_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets go out in the backward pass; whoever is told of one finds it on the CPU."""
    made: list[Late] = []

    def late(size: int, dtype: torch.dtype, device: torch.device) -> Mirror:
        made.append(Late(size, dtype))
        return made[-1]

    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(4)))
    x = torch.randn(3, 4)
    plain = FlatBuffer(model, tail=3, bucket_bytes=(64, 64))
    monkeypatch.setattr(flat_module, "mirror", late)
    other = FlatBuffer(model, tail=3, bucket_bytes=(64, 64))
    (copies,) = made
    for _ in range(2):
        for flat in (plain, other):
            flat.begin()

            def ready(number: int, flat: FlatBuffer = flat) -> None:
                if flat is other:
                    bucket = flat.buckets[number]
                    span = slice(bucket.start, bucket.stop)
                    assert torch.equal(flat.data[span], plain.data[span])
                    copies.log.append(f"ready {number}")

            flat.announce(ready)
            model(x).square().mean().backward()
            if flat is other:
                assert copies.log == ["out 0", "out 1", "out 2"]
            flat.end(1.0)
        assert copies.log[3:] == [
            "out 3", "wait 0", "ready 0", "wait 1", "ready 1", "wait 2", "ready 2", "wait 3",
        ]  # fmt: skip
        assert torch.equal(other.data, plain.data)
        copies.log.clear()
        # The sums come back to where the optimizer reads them.
        other.data.mul_(3)
        other.spread()
        assert torch.equal(copies.there, copies.here)
        x += 1


def test_on_the_cpu_nothing_is_copied() -> None:
    one = mirror(5, torch.float64, CPU)
    assert one.here is one.there
    x = torch.ones(3)
    assert to_device([x], CPU)[0] is x
    assert to_wire(x).data_ptr() == x.data_ptr()
    assert to_wire(torch.ones(2, 3).t()).is_contiguous()


def test_a_function_without_a_share_computes_on_the_cpu() -> None:
    assert device_of_function(None) == CPU
    assert device_of(nn.Linear(1, 1)) == device_of(nn.ReLU()) == CPU


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_share_of_a_gpu_that_is_not_there_is_an_error() -> None:
    told = "this function has 0.5 of a GPU, and torch cannot use it"
    try:
        with pytest.raises(RunFailed, match=told):
            device_of_function(0.5)
    finally:  # as torch has it where no function has a GPU
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = True
