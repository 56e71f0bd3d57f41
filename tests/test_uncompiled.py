"""Torch's compiler stays unloaded in eager training, and is whole once something compiles."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PROGRAM = """
import inspect
import sys
import torch
from dayfly.uncompiled import leave_compiler_unloaded
leave_compiler_unloaded()

def loaded():
    return "torch._dynamo.eval_frame" in sys.modules

weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.Adam([weight], lr=0.5)
def step():
    optimizer.zero_grad()
    weight.sum().backward()
    optimizer.step()
step()
inspect.getmodule(step.__code__)  # looks through all modules
assert not loaded()
assert torch.allclose(weight, torch.full((2,), 0.5), atol=1e-5), weight

graphs = []
def backend(graph, examples):
    graphs.append(graph)
    return graph.forward

@torch.compile(backend=backend)
def compiled(x):
    step()  # which the compiler passes over, as it would without the stand-in
    return 2 * x

assert compiled(torch.ones(1)).tolist() == [2.0]
assert loaded() and graphs
assert torch._dynamo is sys.modules["torch._dynamo"]
assert optimizer.add_param_group.__wrapped__.__dynamo_disable is not None
step()
assert torch.allclose(weight, torch.full((2,), -0.5), atol=1e-5), weight
leave_compiler_unloaded()
assert loaded() and torch._dynamo.is_compiling() is False
"""
STAGES = """
import sys
import torch
from dayfly.uncompiled import leave_compiler_unloaded
leave_compiler_unloaded()
from dayfly.training.stages.layers import build_stage
from dayfly.models.transformers import gpt
from tests.stages.models import job_of
for stage in range(2):
    build_stage(job_of(lambda: gpt(vocabulary=8, window=4, layers=1, width=8)), [1], stage)
out = torch.ones(3, requires_grad=True) * 2
torch.autograd.backward([out], [torch.ones(3)])
assert not {"sympy", "torch._dynamo.eval_frame"} & sys.modules.keys()

from torch.fx.experimental.symbolic_shapes import ShapeEnv, expect_true, sym_eq
one = ShapeEnv().create_unbacked_symint()
assert sym_eq((one, 2), (one, 2)) and not sym_eq((1, 2), (1, 3)) and expect_true(one == one)
"""
SUBMODULE_FIRST = """
import sys
import torch
from dayfly.uncompiled import leave_compiler_unloaded
leave_compiler_unloaded()
import torch._dynamo.testing
assert torch._dynamo.testing is sys.modules["torch._dynamo.testing"]
assert torch._dynamo is sys.modules["torch._dynamo"]
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "program",
    [
        PROGRAM,
        STAGES,
        pytest.param(SUBMODULE_FIRST, marks=pytest.mark.slow),
    ],  # the same import, from below
    ids=["whole", "stages", "submodule first"],
)
def test_nothing_is_loaded_until_something_compiles(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
