"""Training state as named tensors and plain JSON, so that nothing is ever unpickled.

State dicts of optimizers and schedulers are trees of Python's plain types with tensors in them.
`encode` turns such a tree into JSON, with what JSON lacks tagged (`{"$tuple": [...]}`), and moves
the tensors out by name; `decode` gives the same tree back, bit for bit.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from dayfly.errors import RequestError

Tensors = dict[str, torch.Tensor]


def encode(value: Any, path: str, tensors: Tensors) -> Any:
    """JSON for `value`; its tensors go into `tensors`, named by `path` and their place in the tree.

    Raises RequestError, naming the place, for what cannot be kept.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"$float": repr(float(value))}
        case torch.Tensor():
            while path in tensors:  # keys such as 1 and "1" give one path
                path += "'"
            tensors[path] = value.detach()
            return {"$tensor": path}
        case list():
            return [encode(item, f"{path}.{i}", tensors) for i, item in enumerate(value)]
        case tuple() if type(value) in (tuple, torch.Size):
            return {
                "$tuple": [encode(item, f"{path}.{i}", tensors) for i, item in enumerate(value)]
            }
        case deque():
            items = [encode(item, f"{path}.{i}", tensors) for i, item in enumerate(value)]
            return {"$deque": [value.maxlen, items]}
        case dict() if type(value) in (dict, OrderedDict, defaultdict, Counter):
            tag = "$counter" if isinstance(value, Counter) else "$dict"
            return {
                tag: [
                    [encode(key, path, tensors), encode(item, f"{path}.{key}", tensors)]
                    for key, item in value.items()
                ]
            }
    if isinstance(value, np.generic):
        return encode(value.item(), path, tensors)
    raise RequestError(
        f"{path} holds a {type(value).__name__}, which a checkpoint cannot keep: "
        "use numbers, texts, lists, tuples, dicts and tensors"
    )


def decode(tree: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """What `encode` was given."""
    if isinstance(tree, list):
        return [decode(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    ((tag, value),) = tree.items()
    match tag:
        case "$float":
            return float(value)
        case "$tensor":
            return tensors[value]
        case "$tuple":
            return tuple(decode(item, tensors) for item in value)
        case "$deque":
            longest, items = value
            return deque((decode(item, tensors) for item in items), longest)
        case "$dict" | "$counter":
            pairs = ((decode(key, tensors), decode(item, tensors)) for key, item in value)
            return Counter(dict(pairs)) if tag == "$counter" else dict(pairs)
    raise ValueError(f"unknown tag {tag!r} in a state")


def model_tensors(model: torch.nn.Module) -> Tensors:
    """A model's parameters (shared ones once) and buffers, persistent or not, by name."""
    return {
        name: tensor.detach()
        for named in (model.named_parameters(), model.named_buffers())
        for name, tensor in named
    }


def load_model_tensors(
    model: torch.nn.Module, tensors: Mapping[str, torch.Tensor], *, adopt: bool = False
) -> None:
    """Fill a model with what `model_tensors` gave. Raises RequestError if it is another model.

    adopt: let parameters have the memory of `tensors` where they lie in it as in their own, so that
    the model is not there twice; only for one whose parameters share no memory.
    """
    own = model_tensors(model)
    if own.keys() != tensors.keys():
        differing = sorted(own.keys() ^ tensors.keys())
        raise RequestError(f"the weights are another model's: {', '.join(differing[:3])} differ")
    for name, tensor in own.items():
        if tensor.shape != tensors[name].shape:
            raise RequestError(
                f"the weights are another model's: {name} is {list(tensors[name].shape)}, "
                f"not {list(tensor.shape)}"
            )
    parameters = dict(model.named_parameters()) if adopt else {}
    for name, tensor in own.items():
        given, parameter = tensors[name], parameters.get(name)
        layouts = [(t.dtype, t.device, t.stride()) for t in (given, tensor)]
        if parameter is not None and layouts[0] == layouts[1]:
            parameter.data = given
        else:
            tensor.copy_(given)
