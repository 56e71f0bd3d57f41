"""One stage of a job's model, built alone.

The model's function runs on torch's meta device, where tensors have a shape and no memory. The
other stages' layers are then replaced by nn.Identity, which keeps the names of the own parameters
and buffers as they are in the whole model; and only these get memory. So a worker holds its stage
and never the model (FuncPipe section 3.1: a function's memory bounds its stage).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from dayfly.errors import DayflyError, RequestError, in_short
from dayfly.job import Job
from dayfly.training.randomness import WEIGHTS, seeded
from dayfly.training.stages.layers import check_cut, layers_of, stages, tensors_of


@dataclass(frozen=True, slots=True)
class StageModel:
    """A stage of a model.

    model: the whole module tree, in which the other stages' layers are nn.Identity: names of
    parameters and buffers are the whole model's. layers: the stage's layers in their order, with
    their numbers in the whole model. trained: names of the whole model's parameters to train.
    """

    model: nn.Module
    layers: tuple[tuple[int, nn.Module], ...]
    trained: tuple[str, ...]


def build_stage(job: Job, cut: Sequence[int], stage: int) -> StageModel:
    """A stage with memory for its parameters and buffers, which hold nothing of meaning yet.

    To be filled with training/state.py's `load_model_tensors`. Random generators stay as they are.
    Raises RequestError if the model cannot be built or cut so.
    """
    model = build_skeleton(job)
    layers = layers_of(model)
    check_cut(cut, len(layers))
    numbers = stages(cut, len(layers))[stage]
    own = [layers[number] for number in numbers]
    others = [layer for number, layer in enumerate(layers) if number not in numbers]
    trained = tuple(name for name, p in model.named_parameters() if p.requires_grad)
    _prune(model, own, others)
    _materialise(model)
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
