"""`dayfly profile --from-catalogue`: a job's profile on a platform that cannot be reached.

The job is examined here without computing: bytes and FLOPs of its layers on torch's meta device.
The rest comes from rows of the catalogue (`planning.catalogued`). Only the memory of a worker
without a model is measured, in a process of its own: it depends on Python and torch, not on the
platform.

torch's counter counts FLOPs of matrix products, convolutions and attention, a multiply-add as two
(twice what many papers print). Activations, norms, pooling and the loss count nothing.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map
from torch.utils.data import default_collate
from torch.utils.flop_counter import FlopCounterMode

from dayfly.batches import BLOCK_NUMBERS
from dayfly.catalogue.gpu import GpuRequest
from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import DayflyError, RequestError, in_short
from dayfly.job import Job
from dayfly.planning.catalogued import Assumed, JobFacts, profile_of
from dayfly.planning.profile import Affine, Profile
from dayfly.runs.prepare import Data
from dayfly.runs.profiling.layers import Layers, layer_bytes
from dayfly.training.forward import forward
from dayfly.training.optimizers import build_optimizer
from dayfly.training.randomness import DATA, DROPOUT, seeded
from dayfly.training.stages.layers import build_skeleton
from dayfly.training.streams import measured


def layer_flops(job: Job, model: nn.Module, samples: Sequence[Any]) -> tuple[Affine, ...]:
    """FLOPs of each layer's forward pass for n samples; of a model that is no list, of all of it.

    Args:
        model: on the meta device (`training.stages.layers.build_skeleton`).
        samples: as for `layer_bytes`; n and 2n of them tell apart what grows with them.

    Raises:
        RequestError: the model cannot be run there.
        ValueError: the model is on another device.
    """
    if any(p.device.type != "meta" for p in model.parameters()):
        raise ValueError("FLOPs are counted without computing: build the model on the meta device")
    found = Layers.of(job, model)
    several = list(samples) if len(samples) > 1 else list(samples) * 2
    once, twice = (_counted(job, model, found, some) for some in (several, several * 2))
    each = [(two - one) / len(several) for one, two in zip(once, twice, strict=True)]
    return tuple(
        Affine(float(max(0.0, one - slope * len(several))), float(slope))
        for one, slope in zip(once, each, strict=True)
    )


def _counted(job: Job, model: nn.Module, found: Layers, samples: Sequence[Any]) -> list[int]:
    """Of each layer; what comes before the first counts to it, and the loss to the last."""
    batch = tree_map(
        lambda leaf: leaf.to("meta") if isinstance(leaf, torch.Tensor) else leaf,
        default_collate(list(samples)),
    )
    reached: list[int] = []
    counter = FlopCounterMode(display=False)

    def leave(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        reached.append(counter.get_total_flops())

    with ExitStack() as stack:
        if found.listed:
            for module in dict.fromkeys(found.modules):
                stack.callback(module.register_forward_hook(leave).remove)
        stack.enter_context(seeded(DROPOUT, job.seed, 0))
        stack.enter_context(torch.device("meta"))
        stack.enter_context(counter)
        model.train()
        try:
            forward(job, model, batch)
        except Exception as error:
            raise RequestError(
                "the job's model cannot be run on torch's meta device, where tensors have no "
                f"values, so its FLOPs are not known ({in_short(error).rstrip('.')}): profile it "
                "on a platform that you can reach, or write the profile by hand"
            ) from error
    total = counter.get_total_flops()
    if not found.listed:
        return [total]
    if len(reached) != len(found.modules):
        raise RequestError(
            f"the job's model has {len(found.modules)} layers, but its forward applied "
            f"{len(reached)}: let layers() return those that forward applies, in their order"
        )
    ends = [*reached[:-1], total]
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


_BASE_TIMEOUT_S = 120
#: What a worker imports, and then the most memory that it had; ru_maxrss may be its parent's.
_BASE = "import dayfly.runs.worker; print(open('/proc/self/status').read())"
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


def catalogued_profile(
    job: Job,
    *,
    name: str,
    platform: str,
    store: str,
    memory_mib: Sequence[int],
    assumed: Assumed,
    catalogue: Catalogue,
    gpu: GpuRequest | None = None,
) -> Profile:
    """The job's profile on a platform over a store, by the catalogue's names of both.

    Args:
        name: the job's.
        assumed: what is said in place of rows; see `base_mib` for its own.
        gpu: that the platform is to have; None: the one that it has.

    Raises:
        RequestError: a name or a size that there is not, a job that is wrong, and what no row says.
    """
    where, over = catalogue.platform(platform), catalogue.store(store)
    if gpu is not None and platform not in (having := catalogue.with_gpu(gpu.type)):
        raise RequestError(
            f"--gpu {gpu.type}: functions of {platform} have {where.gpu or 'no GPU'}: name one of "
            f"{', '.join(having)}, or leave it out"
        )
    share = None if gpu is None else gpu.share
    return profile_of(job_facts(job, name), where, over, memory_mib, assumed, gpu_share=share)


def job_facts(job: Job, name: str) -> JobFacts:
    """What a profile has of the job itself, found without computing it.

    Random generators stay as they are. Raises RequestError for a job that is wrong, or whose model
    cannot be built or run on torch's meta device.
    """
    with seeded(DATA, job.seed):
        data = Data.of(*measured(job))
    model = build_skeleton(job)
    return JobFacts(
        job=name,
        listed=Layers.of(job, model).listed,
        samples=data.trained,
        validation_samples=data.validation,
        sample_bytes=data.sample_bytes,
        state_per_trained_byte=_state_per_trained_byte(job, model),
        layers=layer_bytes(job, model, data.tried),
        flops=layer_flops(job, model, data.tried),
        measures=BLOCK_NUMBERS + len(job.metrics),
        batch_size=job.batch_size,
        epochs=job.epochs,
        accumulate=job.accumulate,
        validate_every=job.validate_every,
        clips=job.clip_norm is not None,
    )


def counted_flops(job: Job, layers: int) -> tuple[Affine, ...]:
    """Returns the FLOPs of so many layers' forward pass; none, where they cannot be counted."""
    try:
        with seeded(DATA, job.seed):
            data = Data.of(job)
        found = layer_flops(job, build_skeleton(job), data.tried)
    except DayflyError:
        return ()
    return found if len(found) == layers else ()


def base_mib() -> float:
    """Memory of a worker before it has a model: its peak resident set, in a process of its own."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _BASE],
            capture_output=True,
            text=True,
            check=True,
            timeout=_BASE_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise DayflyError(
            f"the memory of a worker without a model cannot be measured: {in_short(error)}: say it "
            "with --base-memory"
        ) from error
    peak = _PEAK.search(done.stdout)
    assert peak is not None, "Linux says VmHWM of every process"
    return int(peak[1]) / 1024


def _state_per_trained_byte(job: Job, model: nn.Module) -> float:
    """By a step of the job's optimizer on the meta device; its few numbers a tensor count, too."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = build_optimizer(job, "", model)
    for parameter in trained:
        parameter.grad = torch.zeros_like(parameter)
    try:
        optimizer.step()
    except Exception as error:
        raise RequestError(
            "the job's optimizer cannot take a step on torch's meta device, where tensors have no "
            f"values, so the bytes of its state are not known ({in_short(error).rstrip('.')}): "
            "profile the job on a platform that you can reach, or write the profile by hand"
        ) from error
    finally:
        model.zero_grad()
    state = [one for own in optimizer.state.values() for one in own.values()]
    nbytes = sum(one.nbytes for one in state if isinstance(one, torch.Tensor))
    return nbytes / max(1, sum(p.nbytes for p in trained))
