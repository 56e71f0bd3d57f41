"""Training state as named tensors and plain JSON, so that nothing is ever unpickled.

State dicts of optimizers and schedulers are trees of Python's plain types with tensors in them.
`encode` turns such a tree into JSON, with what JSON lacks tagged (`{"$tuple": [...]}`), and moves
the tensors out by name; `decode` gives the same tree back, bit for bit.
"""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray

from dayfly.errors import RequestError

Tensors = dict[str, torch.Tensor]


#: What of a state is a parameter's or a buffer's, in words, by how names of tensors begin.
_OF_PARAMETERS = {
    "model.": "weights",
    "ema.": "moving average",
    "optimizer.state.": "optimizer state",
}


def state_digests(tree: Any, tensors: Tensors) -> tuple[str, dict[str, str]]:
    """Returns digests of a state, which equal states share: XXH3 of 128 bits, in hexadecimal.

    Args:
        tree: JSON.
        tensors: of which it speaks, by name.

    Returns:
        One of the whole state; and by what it is of, such as `weights`, the sums of tensors'
        digests, modulo 2^128. Sums of a model's stages add up to those of the whole model.
    """
    digest = xxhash.xxh3_128(json.dumps(tree, sort_keys=True).encode())
    sums: dict[str, int] = {}
    for name, tensor in sorted(tensors.items()):
        one = xxhash.xxh3_128(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        one.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        digest.update(one.digest())
        for begin, what in _OF_PARAMETERS.items():
            if name.startswith(begin):
                sums[what] = (sums.get(what, 0) + one.intdigest()) % 2**128
    return digest.hexdigest(), {what: f"{total:032x}" for what, total in sums.items()}


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

    Args:
        adopt: let parameters have the memory of `tensors` where they lie in it as in their own, so
            that the model is not there twice; only for one whose parameters share no memory.
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


#: Bytes of an array that are looked at at once.
CHUNK_BYTES = 2**24


def chunks(array: NDArray[Any]) -> Iterator[range]:
    """The rows of an array (N, ...) in chunks of about `CHUNK_BYTES`, a row at least."""
    size = max(1, CHUNK_BYTES // max(1, array.nbytes // len(array)))
    for start in range(0, len(array), size):
        yield range(start, min(start + size, len(array)))


def first_bad_row(rows: NDArray[Any]) -> int | None:
    """The first of the rows (N, ...) that holds NaN or infinity; None: all is finite."""
    if rows.dtype.kind not in "fc" or not rows.size:
        return None
    if rows.dtype.kind == "f" and np.isfinite(rows.min()) and np.isfinite(rows.max()):
        return None
    finite = np.isfinite(rows).reshape(len(rows), -1).all(axis=1)
    return None if finite.all() else int(finite.argmin())


def bad_tensor(tensors: Tensors, trained: Collection[str]) -> str | None:
    """The name of a tensor of a replica's state that has no place in a checkpoint; None: all do.

    NaN belongs nowhere. Infinity may be meant, as in the mask of an attention, but not in a
    parameter to train.

    Args:
        tensors: by name.
        trained: names of the parameters to train.
    """
    for name, tensor in tensors.items():
        if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
            continue
        real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
        known = real.float() if real.itemsize == 1 else real  # torch compares no float8
        least, greatest = (float(one) for one in torch.aminmax(known.detach()))
        infinite = name in trained and max(-least, greatest) == float("inf")
        if least != least or infinite:
            return name
    return None


def trained_names(named: Mapping[str, torch.Tensor]) -> frozenset[str]:
    """Returns the names of the parameters to train."""
    return frozenset(name for name, tensor in named.items() if tensor.requires_grad)
