"""A cut, tried before any function starts: finds what would fail, and what passes the boundaries.

The model's layers, applied one after the other, have to give what its forward gives; and each
stage, built alone as a worker will build it, has to give what these layers give, in evaluation and
in training, and the whole model's gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.data import default_collate

from dayfly.errors import DayflyError, RequestError, in_short
from dayfly.job import Job
from dayfly.training.devices import CPU
from dayfly.training.precision import autocast
from dayfly.training.precisions import FP32
from dayfly.training.randomness import EVALUATE, seeded
from dayfly.training.stages.forms import BoundaryForm, Branch, Node, TensorForm
from dayfly.training.stages.layers import (
    StageModel,
    build_skeleton,
    check_cut,
    check_held,
    check_tied,
    layers_of,
    stages,
    tensors_of,
)
from dayfly.training.stages.trial import (
    attempt,
    check_evaluation,
    copied,
    same,
    stage_alone,
    trained,
)

#: What of a module's attributes is torch's own, and copied or given memory by layers.py.
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


def check_stages(
    job: Job,
    model: nn.Module,
    cut: Sequence[int],
    samples: Sequence[Any],
    precision: str = FP32,
    *,
    alone: bool = True,
) -> tuple[BoundaryForm, ...]:
    """What passes each boundary between two stages of the job's model.

    Raises RequestError, in one sentence, for what does not work.

    Args:
        samples: pairs (x, y), from `array_samples` or `dataset_samples`; two numbers of them are
            tried, as shapes follow from the number. The model stays as it is, but for gradients.
        alone: whether stages are built by the job's function, each without the others; else they
            are left of this model.
    """
    layers = layers_of(model)
    check_cut(cut, len(layers))
    check_held(model, layers)
    check_tied(model, layers, cut)
    if alone:
        check_skeleton(job, model)
    several = list(samples) if len(samples) > 1 else list(samples) * 2
    with as_it_was(model):
        model.eval()
        with autocast(precision, CPU):
            passed = _evaluated(job, model, layers, cut, several)
        with autocast(precision, CPU):
            fewer = _evaluated(job, model, layers, cut, several[:-1])
        counts = len(several), len(several) - 1
        forms = [
            BoundaryForm(_form(pair, counts, number - 1))
            for number, *pair in zip(cut, passed[1:-1], fewer[1:-1], strict=True)
        ]
        if alone:
            built = [stage_alone(job, model, cut, stage) for stage in range(len(cut) + 1)]
        else:
            named = tuple(name for name, p in model.named_parameters() if p.requires_grad)
            built = [
                StageModel(model, tuple((number, layers[number]) for number in numbers), named)
                for numbers in stages(cut, len(layers))
            ]
        check_evaluation(job, built, passed, precision)
        return trained(job, model, built, forms, default_collate(several), precision)


@contextmanager
def as_it_was(model: nn.Module) -> Iterator[None]:
    """Gives back modes and buffers, which training mode changes."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [
        (module, name, buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
        with torch.no_grad():
            for module, name, buffer, kept in buffers:
                module._buffers[name] = buffer.copy_(kept)  # forward may have put another there


def _evaluated(
    job: Job, model: nn.Module, layers: Sequence[nn.Module], cut: Sequence[int], samples: list[Any]
) -> list[Any]:
    """The input, what passes each boundary, and the output, in evaluation mode."""
    x = default_collate(samples)[0]
    with torch.no_grad():
        with seeded(EVALUATE, job.seed):
            whole = attempt("its model fails", lambda: model(copied(x)))
        passed = [copied(x)]
        with seeded(EVALUATE, job.seed):
            for number, layer in enumerate(layers):
                if number in cut:
                    _check_passes(x, number - 1)
                    passed.append(copied(x))
                x = _applied(layer, x, number)
    if not same(x, whole):
        raise RequestError(
            "the job's model cannot be cut, as its layers applied one after another give another "
            "result than its forward: let forward do nothing else, and layers() return all of them "
            "in their order"
        )
    return [*passed, x]


def _applied(layer: nn.Module, x: Any, number: int) -> Any:
    before = f"layer {number - 1} returns" if number else "the model is given"
    try:
        return layer(x)
    except DayflyError:
        raise
    except Exception as error:
        raise RequestError(
            f"the job's model cannot be cut, as its layer {number} does not take what {before}: "
            f"{in_short(error).rstrip('.')}: let each layer take what the one before it returns, "
            "as its one argument"
        ) from error


def _check_passes(values: Any, number: int) -> None:
    """Raise RequestError unless what a layer returns can be sent."""
    if type(values) in (tuple, list):
        for item in values:
            _check_passes(item, number)
        return
    advice = "return a tensor, or a tuple or list of tensors, or cut elsewhere"
    if not isinstance(values, torch.Tensor):
        raise RequestError(
            f"layer {number} of the job's model returns a {type(values).__name__}, which cannot be "
            f"sent to the next stage: {advice}"
        )
    if values.layout is not torch.strided or values.is_quantized or values.is_nested:
        raise RequestError(
            f"layer {number} of the job's model returns a tensor of layout "
            f"{str(values.layout).removeprefix('torch.')}{' (quantized)' * values.is_quantized}, "
            "which cannot be sent to the next stage: return a dense one, or cut elsewhere"
        )


def _form(pair: Sequence[Any], counts: tuple[int, int], number: int) -> Node:
    """The form of what a layer returned for two numbers of samples; no gradients yet."""
    one, other = pair
    branch = type(one) in (tuple, list)
    if type(one) is not type(other) or (branch and len(one) != len(other)):
        raise RequestError(
            f"layer {number} of the job's model returns {_counted(one)} of {counts[0]} samples and "
            f"{_counted(other)} of {counts[1]}: return the same form always, or cut elsewhere"
        )
    if branch:
        items = (_form(items, counts, number) for items in zip(one, other, strict=True))
        return Branch(type(one), tuple(items))
    sizes, scales = [], []
    for first, second in zip(one.shape, other.shape, strict=False):
        scales.append(first != second)
        sizes.append(first // counts[0] if first != second else first)
    form = TensorForm(one.dtype, tuple(sizes), tuple(scales), False)
    if not (form.fits(one, counts[0]) and form.fits(other, counts[1])):
        raise RequestError(
            f"layer {number} of the job's model returns {_shape(one)} of {counts[0]} samples and "
            f"{_shape(other)} of {counts[1]}: what passes between stages has to have dimensions "
            "that are fixed, or a multiple of the samples: pad it, or cut elsewhere"
        )
    return form


def _counted(values: Any) -> str:
    kind = type(values).__name__
    return f"a {kind}" if isinstance(values, torch.Tensor) else f"a {kind} of {len(values)}"


def _shape(tensor: torch.Tensor) -> str:
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
