"""Bytes of a job's layers: parameters, what passes between them per sample, and a pass's memory.

Forward passes with hooks find them, of the model as it is: real, or on torch's meta device, where
they take neither memory nor time. Two passes, of n and of 2n samples, separate what grows with the
samples from what does not.

`held_mib` measures memory as the kernel sees it:

    give back what the C library keeps | note what is resident | reset the peak | work | the peak

Without giving back, memory that was freed before would be used again, and not be seen. The peak is
the most that was resident since the reset (proc(5), clear_refs). A platform that watches the same
peak only learns less of this moment.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import default_collate

from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.life.platforms.footprint import Resident
from dayfly.planning.profile import LayerBytes, Profile
from dayfly.training.devices import device_of
from dayfly.training.forward import forward
from dayfly.training.randomness import DROPOUT, seeded
from dayfly.training.stages.layers import check_held, layers_of
from dayfly.training.stages.probe import as_it_was


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of a model in the order in which they are applied; of another model, all of it.

    Args:
        listed: whether the model is a list of layers, and so can be cut.
    """

    model: nn.Module
    modules: tuple[nn.Module, ...]
    names: tuple[str, ...]
    listed: bool

    @classmethod
    def of(cls, job: Job, model: nn.Module) -> Layers:
        """Of a job's model. A job with a step of its own has a model that cannot be cut."""
        whole = cls(model, (model,), (type(model).__name__,), listed=False)
        if job.step is not None:
            return whole
        try:
            modules = layers_of(model)
            check_held(model, modules)
        except RequestError:
            return whole
        paths = {id(module): path for path, module in reversed(list(model.named_modules()))}
        names = [f"{paths[id(module)]} {type(module).__name__}" for module in modules]
        return cls(model, tuple(modules), tuple(names), listed=True)


def layer_bytes(job: Job, model: nn.Module, samples: Sequence[Any]) -> tuple[LayerBytes, ...]:
    """Bytes of each layer of a job's model, the loss counted to the last; of one that is no list of
    layers, of all of it.

    Args:
        samples: a few of the data, as `training.probe.array_samples` or `dataset_samples` give
            them. They are brought to where the model is: on the meta device nothing is computed.
            Otherwise the model computes, and stays as it is, its buffers and the random generators
            included. What one tensor serves in several layers counts to the first.
    """
    several = list(samples) if len(samples) > 1 else list(samples) * 2
    once, twice = (default_collate(some) for some in (several, several * 2))
    return layer_bytes_of(job, Layers.of(job, model), once, twice, len(several))


def layer_bytes_of(
    job: Job, found: Layers, once: Any, twice: Any, each: int
) -> tuple[LayerBytes, ...]:
    """As `layer_bytes`, of two batches: of `each` samples, and of twice as many."""
    one_pass, other_pass = (_passed(job, found, batch) for batch in (once, twice))
    weighed = weights(found.modules)
    return tuple(
        LayerBytes(
            name=name,
            parameters=weight.parameters,
            trained=weight.trained,
            buffers=weight.buffers,
            activations=max(0.0, (two.kept - one.kept) / each),
            output=max(0.0, (two.output - one.output) / each),
            gradient=max(0.0, (two.gradient - one.gradient) / each),
            tensors=weight.tensors,
            moving=weight.moving,
        )
        for name, weight, one, two in zip(found.names, weighed, one_pass, other_pass, strict=True)
    )


@dataclass(slots=True)
class _Passed:
    """Of a layer in one pass, in bytes."""

    kept: int = 0
    output: int = 0
    gradient: int = 0


@dataclass(frozen=True, slots=True)
class Weights:
    """Sizes of a layer's weights; those shared with an earlier layer do not count.

    Args:
        tensors: elements of each trained parameter.
        moving: elements of all buffers.
    """

    parameters: int
    trained: int
    buffers: int
    tensors: tuple[int, ...]
    moving: int


@dataclass(slots=True)
class _Storages:
    """Storages that were met, by identity; held, so that no identity is used twice."""

    met: dict[int, torch.UntypedStorage] = field(default_factory=dict)

    def new_bytes(self, tensor: torch.Tensor) -> int:
        """Bytes of the tensor's memory, if it was not met before."""
        storage = tensor.untyped_storage()
        if id(storage) in self.met:
            return 0
        self.met[id(storage)] = storage
        return storage.nbytes()


def weights(modules: Sequence[nn.Module]) -> Iterator[Weights]:
    """Of each layer of a model, in their order."""
    seen: set[int] = set()
    for module in modules:
        own = [p for p in module.parameters() if id(p) not in seen]
        buffers = [b for b in module.buffers() if id(b) not in seen]
        seen.update(id(tensor) for tensor in chain(own, buffers))
        yield Weights(
            parameters=sum(p.nbytes for p in own),
            trained=sum(p.nbytes for p in own if p.requires_grad),
            buffers=sum(b.nbytes for b in buffers),
            tensors=tuple(p.numel() for p in own if p.requires_grad),
            moving=sum(b.numel() for b in buffers),
        )


def _passed(job: Job, found: Layers, batch: Any) -> list[_Passed]:
    """What a forward pass, in training mode, leaves of each layer."""
    model = found.model
    device = device_of(model)
    batch = tree_map(
        lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, batch
    )
    passed = [_Passed() for _ in found.modules]
    storages = _Storages()
    for tensor in chain(_tensors(batch), model.parameters(), model.buffers()):
        storages.new_bytes(tensor)
    number = -1

    def enter(module: nn.Module, args: tuple[Any, ...]) -> None:
        nonlocal number
        number += 1
        if number < len(passed):
            gradients = (tensor for tensor in _tensors(args) if tensor.requires_grad)
            passed[number].gradient = sum(tensor.nbytes for tensor in gradients)

    def leave(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if number < len(passed):
            passed[number].output = sum(tensor.nbytes for tensor in _tensors(output))

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        passed[min(max(number, 0), len(passed) - 1)].kept += storages.new_bytes(tensor)
        return tensor

    with ExitStack() as stack:
        stack.enter_context(as_it_was(model))
        stack.enter_context(seeded(DROPOUT, job.seed, 0))
        if found.listed:
            for module in dict.fromkeys(found.modules):
                stack.callback(module.register_forward_pre_hook(enter).remove)
                stack.callback(module.register_forward_hook(leave).remove)
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor))
        model.train()
        outputs = forward(job, model, batch).outputs
    if found.listed and number + 1 != len(passed):
        raise RequestError(
            f"the job's model has {len(passed)} layers, but its forward applied {number + 1}: let "
            "layers() return those that forward applies, in their order"
        )
    if not found.listed and outputs is not None:
        passed[0].output = sum(tensor.nbytes for tensor in _tensors(outputs))
    return passed


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


_MIB = 2**20
#: Makes the mark what is resident now.
_FORGET = "5"
#: Other threads may hold something at a moment.
_TIMES = 3


def held_mib(work: Callable[[], object]) -> float | None:
    """The most memory that it takes beside what is there before, in MiB, the median of a few times;
    None: the kernel, or the C library, does not tell. Done once before, so that what stays of it is
    there."""
    work()
    trim = _trim()
    if trim is None:
        return None
    found = [_once(work, trim) for _ in range(_TIMES)]
    known = [one for one in found if one is not None]
    return median(known) if len(known) == _TIMES else None


def _once(work: Callable[[], object], trim: Callable[[int], int]) -> float | None:
    trim(0)
    before = Resident.of("self")
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text(_FORGET)
        work()
        after = Resident.of("self")
        if before is not None and after is not None:
            return max(0.0, (after.most - before.now) / _MIB)
    return None


def _trim() -> Callable[[int], int] | None:
    """Gives back to the kernel what is free in the C library's heaps; only glibc has it."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return lambda pad: int(trim(ctypes.c_size_t(pad)))


def check_profiled(job: Job, model: nn.Module, profile: Profile) -> None:
    """Raise RequestError if the job's model is not the one that was profiled.

    That is one of as many layers, with as many bytes of parameters each.
    """
    found = Layers.of(job, model)
    if len(found.modules) != len(profile.layers):
        raise _another(
            profile, f"it has {_count(len(profile.layers))}, the job's {_count(len(found.modules))}"
        )
    for name, weight, layer in zip(
        found.names, weights(found.modules), profile.layers, strict=True
    ):
        if weight.parameters != layer.parameters:
            raise _another(
                profile,
                f"its layer {layer.name!r} has {layer.parameters} bytes of parameters, and the "
                f"job's {name!r} {weight.parameters}",
            )


def _another(profile: Profile, how: str) -> RequestError:
    return RequestError(
        f"the plan's profile of {profile.job!r} is of another model than the job's: {how}; profile "
        "this job, and plan it anew"
    )


def _count(layers: int) -> str:
    return f"{layers} layer{'s' * (layers != 1)}"
