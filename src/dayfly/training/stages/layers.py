"""A model as an ordered list of layers, and where it is cut.

    --cut 4,9 of 12 layers:   | 0 1 2 3 | 4 5 6 7 8 | 9 10 11 |
                                stage 0     stage 1    stage 2

Sources: GPipe (Huang et al., 2019), section 2.1, has a network of L layers cut into K cells;
FuncPipe section 3 and Hydrozoa call these stages.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, cast

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from dayfly.errors import DayflyError, RequestError, in_short
from dayfly.job import Job
from dayfly.training.randomness import WEIGHTS, seeded

#: How many names a refusal gives, of those that it is about.
_NAMED = 3


def layers_of(model: nn.Module) -> list[nn.Module]:
    """The model's layers, in the order in which forward applies them.

    Those that its method `layers()` returns, or the children of an nn.Sequential. A layer without
    weights may stand in several places. Raises RequestError if the model gives no such list, or
    if one layer lies within another.
    """
    method = getattr(type(model), "layers", None)
    if callable(method):
        layers = _returned(model, cast("Callable[[nn.Module], Any]", method))
    elif isinstance(model, nn.Sequential):
        layers = list(model)
    else:
        raise RequestError(
            f"the job's model is a {type(model).__name__}, which is no list of layers: "
            "give an nn.Sequential, or a method layers() that returns its layers in the order in "
            "which forward applies them"
        )
    if not layers:
        raise RequestError("the job's model has no layers: there is nothing to cut")
    numbers: dict[int, int] = {}
    for number, layer in enumerate(layers):
        numbers.setdefault(id(layer), number)
    for number, layer in enumerate(layers):
        for inner in layer.modules():
            if inner is not layer and id(inner) in numbers:
                raise RequestError(
                    f"layer {numbers[id(inner)]} of the job's model lies within its layer "
                    f"{number}: let layers() return modules of which none holds another"
                )
    return layers


def _returned(model: nn.Module, method: Callable[[nn.Module], Any]) -> list[nn.Module]:
    try:
        layers = method(model)
    except DayflyError:
        raise
    except Exception as error:
        raise RequestError(f"the job's model's layers() fails: {in_short(error)}") from error
    if not isinstance(layers, (list, tuple, nn.ModuleList)):
        raise RequestError(
            f"the job's model's layers() returned {type(layers).__name__}: return a list of the "
            "model's submodules"
        )
    own = {id(module) for module in model.modules() if module is not model}
    for number, layer in enumerate(layers):
        if id(layer) not in own:
            raise RequestError(
                f"layer {number} that the job's model's layers() returned is a "
                f"{type(layer).__name__} that is none of the model's submodules: make it one, by "
                "assigning it to an attribute of the model"
            )
    return list(layers)


def check_cut(cut: Sequence[int], layers_count: int) -> None:
    """Raise RequestError unless the cut is ascending numbers from 1 to L - 1, of L layers."""
    most = layers_count - 1
    if most < 1:
        raise RequestError("the job's model has one layer, which cannot be cut: run it uncut")
    ascending = all(left < right for left, right in pairwise(cut))
    if not cut or not ascending or cut[0] < 1 or cut[-1] > most:
        raise RequestError(
            f"--cut {as_flag(cut)}: the model has {layers_count} layers: "
            f"give ascending numbers from 1 to {most}"
        )


def even_cut(sizes: Sequence[int], stages: int) -> tuple[int, ...]:
    """The cut into stages of which the largest is as small as can be; of equal ones the first.

    Args:
        sizes: of the layers, at least as many as stages.
        stages: how many.

    Examples:
        >>> even_cut([5, 1, 1, 1, 5], 3)
        (1, 4)
    """
    layers = len(sizes)
    sums = [0, *accumulate(sizes)]
    # cuts[end]: the largest stage, and the cut, of the layers before `end` in so many stages.
    cuts: dict[int, tuple[int, tuple[int, ...]]]
    cuts = {end: (sums[end], ()) for end in range(1, layers + 1)}
    for number in range(2, stages + 1):
        cuts = {
            end: min(
                (max(cuts[begin][0], sums[end] - sums[begin]), (*cuts[begin][1], begin))
                for begin in range(number - 1, end)
            )
            for end in range(number, layers + 1)
        }
    return cuts[layers][1]


def stages(cut: Sequence[int], layers_count: int) -> tuple[range, ...]:
    """The numbers of each stage's layers, of a cut that `check_cut` let pass."""
    return tuple(map(range, (0, *cut), (*cut, layers_count)))


def as_flag(cut: Sequence[int]) -> str:
    """The cut as it is typed: `4,9`."""
    return ",".join(map(str, cut))


def check_held(model: nn.Module, layers: Sequence[nn.Module]) -> None:
    """Raise RequestError, by name, for parameters and buffers that are in none of the layers."""
    held = {id(tensor) for layer in layers for _, tensor in tensors_of(layer)}
    missing = [name for name, tensor in tensors_of(model) if id(tensor) not in held]
    if missing:
        raise RequestError(
            f"the job's model holds {_some(missing)} in none of its layers: "
            "move them into the layer that uses them"
        )


def check_tied(model: nn.Module, layers: Sequence[nn.Module], cut: Sequence[int]) -> None:
    """Raise RequestError if a stage's parameter or buffer is another stage's, too.

    Within a stage they may be shared. So may memory in no case, without being one tensor, as each
    would get memory of its own.
    """
    _check_memory(model)
    paths = {id(module): path for path, module in reversed(list(model.named_modules()))}
    users: dict[int, list[tuple[int, str]]] = {}
    for number, layer in enumerate(layers):
        for name, tensor in tensors_of(layer):
            users.setdefault(id(tensor), []).append((number, f"{paths[id(layer)]}.{name}"))
    tied = [found for found in users.values() if found[0][0] != found[-1][0]]
    parted = [
        (first, last)
        for (first, *_, last) in tied
        if any(first[0] < index <= last[0] for index in cut)
    ]
    if not parted:
        return
    (one, first_name), (other, last_name) = parted[0]
    names = (
        f"layers {one} and {other} share {first_name}"
        if first_name == last_name
        else f"{first_name} and {last_name} are one tensor, in layers {one} and {other}"
    )
    raise RequestError(
        f"--cut {as_flag(cut)} parts layers that share weights: {names}: "
        f"{_advice(cut, len(layers), [(found[0][0], found[-1][0]) for found in tied])}"
    )


def _advice(cut: Sequence[int], layers_count: int, tied: Sequence[tuple[int, int]]) -> str:
    """A cut near this one that parts no tied layers, if there is any."""
    allowed = {
        index
        for index in range(1, layers_count)
        if not any(first < index <= last for first, last in tied)
    }
    found = sorted(allowed.intersection(cut))
    for index in cut:
        free = allowed.difference(found)
        if index not in allowed and free:
            found.append(min(free, key=lambda other: (abs(other - index), other)))
    if not found:
        return "give each its own, as every cut parts them"
    return f"give --cut {as_flag(sorted(found))}, or each its own"


def _check_memory(model: nn.Module) -> None:
    """Raise RequestError if two tensors that are not one share memory."""
    found = {id(tensor): (name, tensor) for name, tensor in reversed(list(tensors_of(model)))}
    real = [(name, tensor) for name, tensor in found.values() if not tensor.is_meta]
    places = sorted((*_memory(tensor), name) for name, tensor in real if tensor.numel())
    for (_, end, name), (start, _, other) in pairwise(places):
        if start < end:
            first, second = sorted((name, other))
            raise RequestError(
                f"{first} and {second} of the job's model share memory, and are not one "
                "parameter: assign the same parameter to both, or copy one"
            )


def _memory(tensor: torch.Tensor) -> tuple[int, int]:
    """Addresses of a tensor's first byte, and of the first after it."""
    strides = zip(tensor.shape, tensor.stride(), strict=True)
    elements = 1 + sum((size - 1) * stride for size, stride in strides)
    return tensor.data_ptr(), tensor.data_ptr() + elements * tensor.itemsize


def tensors_of(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """A module's parameters and buffers by name; shared ones by each of their names."""
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown


@dataclass(frozen=True, slots=True)
class StageModel:
    """A stage of a model.

    Args:
        model: the whole module tree, in which the other stages' layers are nn.Identity: names of
            parameters and buffers are the whole model's.
        layers: the stage's layers in their order, with their numbers in the whole model.
        trained: names of the whole model's parameters to train.
    """

    model: nn.Module
    layers: tuple[tuple[int, nn.Module], ...]
    trained: tuple[str, ...]


def build_stage(job: Job, cut: Sequence[int], stage: int) -> StageModel:
    """A stage with memory for its parameters and buffers, which hold nothing of meaning yet.

    To be filled with training/state.py's `load_model_tensors`. Random generators stay as they are.
    Raises RequestError if the model cannot be built or cut so.
    """
    built = keep_stage(build_skeleton(job), cut, stage)
    _materialise(built.model)
    return built


def keep_stage(model: nn.Module, cut: Sequence[int], stage: int) -> StageModel:
    """Leaves a stage of a model, which changes. Raises RequestError if it cannot be cut so."""
    layers = layers_of(model)
    check_cut(cut, len(layers))
    numbers = stages(cut, len(layers))[stage]
    own = [layers[number] for number in numbers]
    others = [layer for number, layer in enumerate(layers) if number not in numbers]
    trained = tuple(name for name, p in model.named_parameters() if p.requires_grad)
    _prune(model, own, others)
    return StageModel(model, tuple(zip(numbers, own, strict=True)), trained)


def build_skeleton(job: Job) -> nn.Module:
    """The job's model on the meta device: names, shapes and dtypes without memory.

    What its function puts on a device by name, or loads from a file, is there nevertheless.
    Raises RequestError if the function does not work so.
    """
    assert job.model is not None
    with (
        seeded(WEIGHTS, job.seed),
        torch.device("meta"),
        _NothingDrawn(),
        warnings.catch_warnings(),
    ):
        # Weights that the function loads are not taken; those of the checkpoint are, later.
        warnings.filterwarnings("ignore", message=r".*which is a no-op.*", category=UserWarning)
        try:
            model = job.model()
        except DayflyError:
            raise
        except Exception as error:
            raise RequestError(
                "the job's model cannot be cut, as its function fails on torch's meta device, "
                f"where tensors have no values: {in_short(error).rstrip('.')}: make tensors whose "
                'values it reads with device="cpu", and take weights by init='
            ) from error
    if not isinstance(model, nn.Module):
        raise RequestError(
            f"the job's model function returned {type(model).__name__}: return a torch module"
        )
    return model


#: Fill a tensor with random values, as most of torch.nn.init does.
_DRAWS = frozenset(
    getattr(torch.Tensor, f"{name}_")
    for name in ("normal", "uniform", "bernoulli", "exponential", "log_normal", "cauchy", "random")
)


class _NothingDrawn(TorchFunctionMode):
    """Tensors without memory get no first values, as torch would import sympy to find that there is
    nothing to do."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        fills = func in _DRAWS or getattr(func, "__module__", None) == nn.init.__name__
        tensor = args[0] if args else given.get("tensor")
        if fills and isinstance(tensor, torch.Tensor) and tensor.is_meta:
            return tensor
        return func(*args, **given)


def _prune(model: nn.Module, own: Sequence[nn.Module], others: Sequence[nn.Module]) -> None:
    """Leave of the model what its own layers need; also elsewhere in its tree than in layers."""
    kept = {id(module) for layer in own for module in layer.modules()}
    kept_tensors = {id(tensor) for layer in own for _, tensor in tensors_of(layer)}
    foreign = {
        id(module): module
        for layer in others
        for module in layer.modules()
        if id(module) not in kept
    }
    for module in list(model.modules()):
        if id(module) in kept:
            continue
        if id(module) not in foreign:
            for name, child in module._modules.items():
                if id(child) in foreign:
                    module._modules[name] = nn.Identity()
        # Foreign layers may be held by a plain list of the model's, and their tensors be real.
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if id(tensor) not in kept_tensors:
                    held[name] = None


def _materialise(model: nn.Module) -> None:
    """Give memory on the CPU to what is on the meta device; what is shared stays shared."""
    made: dict[int, torch.Tensor] = {}
    kept: list[torch.Tensor] = []  # an id is a tensor's own only as long as it lives
    for module in model.modules():
        for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
            if tensor is None or not tensor.is_meta:
                continue
            if id(tensor) not in made:
                made[id(tensor)] = _real(tensor)
                kept.append(tensor)
            # By setattr, as torch's recurrent layers note their weights in it.
            setattr(module, name, made[id(tensor)])


def _real(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_contiguous():
        real = torch.empty(tensor.shape, dtype=tensor.dtype)
    else:
        # Of a tensor on the meta device torch imports sympy to find the strides.
        real = torch.empty_like(tensor.detach(), device="cpu")
    if not isinstance(tensor, nn.Parameter):
        return real.requires_grad_(tensor.requires_grad)
    parameter: nn.Parameter = torch.Tensor._make_subclass(type(tensor), real, tensor.requires_grad)
    parameter.__dict__.update(tensor.__dict__)
    for hook in (tensor._backward_hooks or {}).values():
        parameter.register_hook(hook)  # type: ignore[no-untyped-call]
    for hook in (tensor._post_accumulate_grad_hooks or {}).values():
        parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
    return parameter
