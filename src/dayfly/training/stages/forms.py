"""What passes from a stage to the next, and the gradients that come back, as plain bytes.

A stage passes one tensor, or a tuple or list of them, nested as it likes (an AmoebaNet's cells pass
two; a mask may be of integers). Its form is known before anything starts: so bytes on the wire are
only the tensors' own, one after the other, each from a multiple of 16:

    | tensor 0 | pad | tensor 1 | pad | tensor 2 |      and the same for gradients, of those
                                                        tensors only that need one

Nothing is pickled. Source: GPipe (Huang et al., 2019), section 2.2: only the activations at the
boundaries are communicated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch.autograd import Function

from dayfly.errors import DayflyError
from dayfly.training.devices import to_wire

#: Where a tensor may begin in a message.
_ALIGN_BYTES = 16

#: A tensor, or tuples and lists of such.
Values = Any


@dataclass(frozen=True, slots=True)
class TensorForm:
    """One tensor of a boundary.

    Args:
        sizes: of its dimensions.
        scales: whether a dimension is that for each sample, or for all.
        gradient: whether one comes back.
    """

    dtype: torch.dtype
    sizes: tuple[int, ...]
    scales: tuple[bool, ...]
    gradient: bool

    def shape(self, samples: int) -> tuple[int, ...]:
        """Its shape for this many samples."""
        return tuple(
            size * samples if scales else size
            for size, scales in zip(self.sizes, self.scales, strict=True)
        )

    def nbytes(self, samples: int) -> int:
        """Bytes of its elements for this many samples."""
        return prod(self.shape(samples)) * self.dtype.itemsize

    def fits(self, tensor: torch.Tensor, samples: int) -> bool:
        """Whether a tensor is of this form for this many samples."""
        return tensor.dtype is self.dtype and tuple(tensor.shape) == self.shape(samples)

    def samples_of(self, tensor: torch.Tensor) -> int | None:
        """Of how many samples a tensor is, if that can be told from it."""
        for size, scales, found in zip(self.sizes, self.scales, tensor.shape, strict=False):
            if scales and size:
                return found // size
        return None


@dataclass(frozen=True, slots=True)
class Branch:
    """A tuple or list (kind) of a boundary."""

    kind: type[tuple[Any, ...]] | type[list[Any]]
    items: tuple[Node, ...]


Node = TensorForm | Branch


@dataclass(frozen=True, slots=True)
class BoundaryForm:
    """What passes a boundary between two stages: a structure of tensors' forms."""

    root: Node

    @property
    def tensors(self) -> tuple[TensorForm, ...]:
        """The tensors' forms, in the order in which they stand in a message."""
        return tuple(_leaves(self.root))

    def nbytes(self, samples: int) -> int:
        """Bytes of a message with this many samples."""
        return _spans(self.tensors, samples)[1]

    def gradient_nbytes(self, samples: int) -> int:
        """Bytes of a message with the gradients of this many samples; 0 if none come back."""
        return _spans(self._graded, samples)[1]

    def flatten(self, values: Values) -> list[torch.Tensor]:
        """The tensors of values, in their order. Raises DayflyError if they are of another form."""
        found: list[torch.Tensor] = []
        _collect(self.root, values, found)
        tensors = self.tensors
        counts = (form.samples_of(one) for form, one in zip(tensors, found, strict=True))
        samples = next((count for count in counts if count is not None), 0)
        for number, (form, tensor) in enumerate(zip(tensors, found, strict=True)):
            _check(form, tensor, samples, f"tensor {number} between two stages")
        return found

    def pack(self, values: Values) -> torch.Tensor:
        """A message (nbytes,) uint8 of values; their own memory if they are one whole tensor."""
        return _joined(self.flatten(values))

    def unpack(self, message: torch.Tensor, samples: int) -> Values:
        """The values of a message: views of it."""
        parts = iter(_parted(self.tensors, message, samples))
        return _built(self.root, parts)

    def pack_gradients(
        self, gradients: Sequence[torch.Tensor | None], samples: int
    ) -> torch.Tensor:
        """Returns gradients as a message (gradient_nbytes,) uint8. A single one is not copied.

        Args:
            gradients: one for each tensor that needs one; None, of a tensor that the stage did not
                use, becomes zeros.
            samples: of the micro-batch.

        Raises:
            DayflyError: one is of another form.
        """
        parts = []
        for number, (form, gradient) in enumerate(zip(self._graded, gradients, strict=True)):
            if gradient is None:
                gradient = torch.zeros(form.shape(samples), dtype=form.dtype)
            elif gradient.layout is not torch.strided:
                gradient = gradient.to_dense()
            _check(form, gradient, samples, f"gradient {number} between two stages")
            parts.append(gradient)
        return _joined(parts)

    def unpack_gradients(self, message: torch.Tensor, samples: int) -> list[torch.Tensor]:
        """The gradients of a message: views of it."""
        return _parted(self._graded, message, samples)

    def graded(self, values: Values) -> list[torch.Tensor]:
        """Returns the tensors of values that get a gradient: the roots of the backward pass."""
        tensors = zip(self.tensors, self.flatten(values), strict=True)
        return [tensor for form, tensor in tensors if form.gradient]

    def enter(self, values: Values) -> tuple[list[torch.Tensor], Values]:
        """What a stage's first layer is given of received values, and leaves of autograd.

        The leaves get the gradients that go back (`pack_gradients`): one each of the tensors that
        need one. What is fed shares memory with the values, and no layer may write into a leaf:
        it is an alias, into which an in-place first layer can.
        """
        leaves: list[torch.Tensor] = []
        fed: list[torch.Tensor] = []
        for form, tensor in zip(self.tensors, self.flatten(values), strict=True):
            if form.gradient:
                leaves.append(tensor.detach().requires_grad_())
                fed.append(_Alias.apply(leaves[-1]))  # type: ignore[no-untyped-call]
            else:
                fed.append(tensor.detach())
        return leaves, _built(self.root, iter(fed))

    def to_json(self) -> Any:
        """The form as JSON."""
        return _dumped(self.root)

    @classmethod
    def from_json(cls, tree: Any) -> BoundaryForm:
        """The form of which this is the `to_json`. Raises ValueError if it is none."""
        return cls(_loaded(tree))

    @property
    def _graded(self) -> tuple[TensorForm, ...]:
        return tuple(form for form in self.tensors if form.gradient)


class _Alias(Function):
    """The same memory as another tensor of the graph: a view of a leaf could not be written."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0]


def _leaves(node: Node) -> Iterator[TensorForm]:
    if isinstance(node, TensorForm):
        yield node
    else:
        for item in node.items:
            yield from _leaves(item)


def _collect(node: Node, values: Values, found: list[torch.Tensor]) -> None:
    if isinstance(node, TensorForm):
        if not isinstance(values, torch.Tensor):
            raise DayflyError(
                f"a layer returned {type(values).__name__} where it returned a tensor when it was "
                "tried: let it return the same form always"
            )
        found.append(values)
        return
    if type(values) is not node.kind or len(values) != len(node.items):
        raise DayflyError(
            f"a layer returned {type(values).__name__} where it returned a {node.kind.__name__} of "
            f"{len(node.items)} when it was tried: let it return the same form always"
        )
    for item, value in zip(node.items, values, strict=True):
        _collect(item, value, found)


def _check(form: TensorForm, tensor: torch.Tensor, samples: int, what: str) -> None:
    if not form.fits(tensor, samples):
        raise DayflyError(
            f"{what} is {list(tensor.shape)} {tensor.dtype}, not {list(form.shape(samples))} "
            f"{form.dtype} as when it was tried: let layers give shapes that depend on the number "
            "of samples alone"
        )


def _built(node: Node, parts: Iterator[torch.Tensor]) -> Values:
    if isinstance(node, TensorForm):
        return next(parts)
    return node.kind(_built(item, parts) for item in node.items)


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGN_BYTES) * _ALIGN_BYTES


def _spans(forms: Sequence[TensorForm], samples: int) -> tuple[list[tuple[int, int]], int]:
    """Where each tensor begins and ends in a message, and the message's size, in bytes."""
    spans: list[tuple[int, int]] = []
    end = 0
    for form in forms:
        start = _aligned(end)
        end = start + form.nbytes(samples)
        spans.append((start, end))
    return spans, end


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return to_wire(tensor.resolve_conj().resolve_neg()).reshape(-1).view(torch.uint8)


def _joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    parts = [_bytes_of(tensor) for tensor in tensors]
    if len(parts) == 1:
        return parts[0]
    nbytes = 0
    for part in parts:
        nbytes = _aligned(nbytes) + len(part)
    message = torch.empty(nbytes, dtype=torch.uint8)
    end = 0
    for part in parts:
        start = _aligned(end)
        message[end:start] = 0  # the same values are the same bytes
        end = start + len(part)
        message[start:end] = part
    return message


def _parted(forms: Sequence[TensorForm], message: torch.Tensor, samples: int) -> list[torch.Tensor]:
    spans, nbytes = _spans(forms, samples)
    if len(message) != nbytes:
        raise DayflyError(
            f"a message between two stages has {len(message)} bytes, not the {nbytes} of "
            f"{samples} samples: start the run again from its checkpoint"
        )
    return [
        message[start:end].view(form.dtype).view(form.shape(samples))
        for form, (start, end) in zip(forms, spans, strict=True)
    ]


def _dumped(node: Node) -> Any:
    if isinstance(node, Branch):
        return {node.kind.__name__: [_dumped(item) for item in node.items]}
    return {
        "dtype": str(node.dtype).removeprefix("torch."),
        "sizes": list(node.sizes),
        "scales": list(node.scales),
        "gradient": node.gradient,
    }


def _loaded(tree: Any) -> Node:
    match tree:
        case {"tuple": list(items), **rest} if not rest:
            return Branch(tuple, tuple(map(_loaded, items)))
        case {"list": list(items), **rest} if not rest:
            return Branch(list, tuple(map(_loaded, items)))
        case {
            "dtype": str(name),
            "sizes": list(sizes),
            "scales": list(scales),
            "gradient": bool(gradient),
        } if (
            isinstance(dtype := getattr(torch, name, None), torch.dtype)
            and len(sizes) == len(scales)
            and all(type(size) is int and 0 <= size < 2**63 for size in sizes)
            and all(type(one) is bool for one in scales)
        ):
            return TensorForm(dtype, tuple(sizes), tuple(scales), gradient)
    raise ValueError(f"{tree!r:.80} is no form of what passes between two stages")
