"""Whether two backends gave the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from tests.process_group.worker import Outcome
from tests.process_group.workloads import Workload
from tests.process_group.world import World

REFERENCE = "gloo"
BACKEND = "dayfly"
#: Relative to the largest element, by type: sums of more than two terms, in whatever order.
TOLERANCES = {
    torch.float16: 2e-3,
    torch.bfloat16: 2e-2,
    torch.float32: 1e-6,
    torch.float64: 1e-14,
    torch.complex64: 1e-6,
    torch.complex128: 1e-14,
}


def assert_equal(
    world: World,
    workload: Workload,
    world_size: int,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run it over both; every rank holds the same, bit for bit, or within `TOLERANCES`.

    environment: of the run over dayfly.
    """
    case = workload, world_size
    if (expected := world.references.get(case)) is None:
        expected = world.references[case] = values(world, workload, world_size, REFERENCE)
    found = values(world, workload, world_size, BACKEND, environment)
    problems = [
        f"rank {rank}: {problem}"
        for rank, (mine, theirs) in enumerate(zip(found, expected, strict=True))
        for problem in differences(mine, theirs, exact=workload.exact or world_size == 2)
    ]
    assert not problems, "\n".join(problems)


def values(
    world: World,
    workload: Workload,
    world_size: int,
    backend: str,
    environment: Mapping[str, str] | None = None,
) -> Sequence[Mapping[str, torch.Tensor]]:
    """What the workload returns on each rank."""
    outcomes = world.run(workload.path, world_size, backend, environment=environment)
    done = [outcome.values for outcome in outcomes if outcome.values is not None]
    assert len(done) == world_size, f"over {backend}: {failures(outcomes)}\n{world.log()}"
    return done


def failures(outcomes: Sequence[Outcome]) -> str:
    """What went wrong on each rank."""
    return "\n".join(
        f"rank {rank}: {outcome.trace or f'ended with {outcome.code}'}"
        for rank, outcome in enumerate(outcomes)
        if outcome.values is None
    )


def differences(
    found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], *, exact: bool
) -> list[str]:
    """What is not the same in two ranks' values, in words."""
    problems = [f"{name} is missing" for name in expected.keys() - found.keys()]
    problems += [f"{name} is too many" for name in found.keys() - expected.keys()]
    for name in sorted(found.keys() & expected.keys()):
        mine, theirs = found[name], expected[name]
        if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
            problems.append(
                f"{name}: {mine.dtype} {tuple(mine.shape)}, "
                f"not {theirs.dtype} {tuple(theirs.shape)}"
            )
        elif not _same(mine, theirs, 0.0 if exact else TOLERANCES.get(mine.dtype, 0.0)):
            problems.append(f"{name}: {_short(mine)}, not {_short(theirs)}")
    return problems


def _same(mine: torch.Tensor, theirs: torch.Tensor, relative: float) -> bool:
    if relative == 0.0 or mine.numel() == 0:
        return torch.equal(mine, theirs)
    wide = torch.complex128 if mine.dtype.is_complex else torch.float64
    largest = theirs.to(wide).abs().max().item()
    return torch.allclose(mine.to(wide), theirs.to(wide), rtol=0.0, atol=relative * largest)


def _short(tensor: torch.Tensor) -> str:
    return repr(tensor.flatten()[:3].tolist())
