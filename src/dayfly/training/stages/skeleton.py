"""Whether a model can be built stage by stage: what its skeleton on the meta device has to be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.training.stages.build import build_skeleton
from dayfly.training.stages.layers import layers_of, tensors_of

#: What of a module's attributes is torch's own, and copied or given memory by build.py.
_TORCHS = frozenset(vars(nn.Module()))


def check_skeleton(job: Job, model: nn.Module) -> None:
    """Raise RequestError unless the job's function builds this model without memory, too."""
    skeleton, again = build_skeleton(job), build_skeleton(job)
    _check_own(skeleton, again)
    own, found = _described(model), _described(skeleton)
    for name in [*own, *found]:
        if own.get(name) != found.get(name):
            raise RequestError(
                "the job's model cannot be cut, as its function builds another on torch's meta "
                f"device, where tensors have no values: {name} is {found.get(name, 'missing')}, "
                f"not {own.get(name, 'missing')}: let what it builds depend on no values"
            )
    layers, others = _places(model), _places(skeleton)
    if layers != others:
        raise RequestError(
            f"the job's model cannot be cut, as its {len(layers)} layers are others on torch's "
            "meta device, where tensors have no values: let what it builds depend on no values"
        )
    for path, module in skeleton.named_modules():
        for name, value in vars(module).items():
            if name not in _TORCHS and not _made_again(module, name):
                _check_attribute(module, f"{path}.{name}".removeprefix("."), name, value)


def _places(model: nn.Module) -> list[str]:
    """Where each layer is, and of which kind: a parametrization makes a new class each time."""
    paths = {id(module): path for path, module in model.named_modules()}
    return [f"{paths[id(layer)]} {type(layer).__name__}" for layer in layers_of(model)]


def _check_own(skeleton: nn.Module, again: nn.Module) -> None:
    """Two calls of the function give two models; a captured one would travel whole."""
    places = {tensor.data_ptr() for _, tensor in tensors_of(again) if not tensor.is_meta}
    for name, tensor in tensors_of(skeleton):
        if not tensor.is_meta and tensor.numel() and tensor.data_ptr() in places:
            raise RequestError(
                f"the job's model function gives the same {name} whenever it is called: build the "
                "model in the function, and give weights by init=, as a worker holds its stage only"
            )


def _described(model: nn.Module) -> dict[str, str]:
    """What is to be equal of each parameter and buffer, by name, in words."""
    first: dict[int, str] = {}
    described = {}
    for name, tensor in tensors_of(model):
        text = f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
        if not tensor.requires_grad:
            text += " without gradient"
        if first.setdefault(id(tensor), name) != name:
            text += f", the same as {first[id(tensor)]}"
        described[name] = text
    return described


def _made_again(module: nn.Module, name: str) -> bool:
    """Whether an attribute is computed before each forward pass, as by torch's weight_norm.

    Or is kept by torch itself beside the parameters, as in its recurrent layers.
    """
    hooks = module._forward_pre_hooks.values()
    made = {getattr(hook, "name", getattr(hook, "_tensor_name", None)) for hook in hooks}
    return name in made or (isinstance(module, nn.RNNBase) and name == "_flat_weights")


def _check_attribute(module: nn.Module, path: str, name: str, value: Any) -> None:
    """Raise RequestError for tensors beside parameters and buffers, which would have no values."""
    kind = type(module).__name__
    registered = {id(tensor) for _, tensor in tensors_of(module)}
    if isinstance(value, torch.Tensor):
        if value.is_meta:
            raise RequestError(
                f"the job's model cannot be cut, as {path} of its {kind} is a tensor, but neither "
                f'parameter nor buffer: register it by register_buffer("{name}", ...)'
            )
        return
    known = {id(inner) for inner in module.modules()}
    for held in _held(value):
        if isinstance(held, torch.Tensor) and held.is_meta:
            how = "use nn.ParameterList" if id(held) in registered else "register them as buffers"
            raise RequestError(
                f"the job's model cannot be cut, as {path} of its {kind} is a "
                f"{type(value).__name__} that holds tensors: {how}"
            )
        if isinstance(held, nn.Module) and id(held) not in known and any(tensors_of(held)):
            raise RequestError(
                f"the job's model cannot be cut, as {path} of its {kind} is a "
                f"{type(value).__name__} that holds modules which are not its own: use "
                "nn.ModuleList"
            )


def _held(value: Any) -> Iterator[Any]:
    """What a list, tuple, set or dict holds, at any depth."""
    waiting, seen = [value], {id(value)}
    while waiting:
        holder = waiting.pop()
        if isinstance(holder, Mapping):
            holder = holder.values()
        elif not isinstance(holder, (list, tuple, set, frozenset)):
            continue
        for item in holder:
            if id(item) not in seen:
                seen.add(id(item))
                waiting.append(item)
                yield item
