"""Large tensors in files, of which memory holds those in use: for a model larger than memory.

    computed:  a = ...     b = f(a)     c = g(b)        each at least LARGE_BYTES
    files:     | a |       | a | b |    | a | b | c |   mapped; gone with their tensors
    memory:    | a |           | b |            | c |   given back beyond RESIDENT_BYTES

To try a cut model takes the weights, gradients and optimizer state of all its stages, of which a
function holds one. Inside `paged`, each large tensor that an operation of torch makes is moved to a
file at once. Its values are the same bits, and its pages are read again
when an operation needs them. So memory holds the tensors of one operation, and RESIDENT_BYTES.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from dayfly.errors import RequestError

#: Smaller tensors stay where they are.
LARGE_BYTES = 2**20
#: Bytes of mapped tensors that operations may use until all pages go back to the kernel.
RESIDENT_BYTES = 64 * 2**20

_C = ctypes.CDLL(None, use_errno=True)
_C.mmap.restype = ctypes.c_void_p
_C.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_C.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_C.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


@contextmanager
def paged(directory: Path, *, when: bool) -> Iterator[None]:
    """Moves large tensors on the CPU that are made inside to files, which have no names.

    Args:
        directory: on whose disk the files are.
        when: whether it does; else it does nothing.

    Raises:
        RequestError: the disk has no room for them.
    """
    with _Paging(directory) if when else nullcontext():
        yield


class _Paging(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees each operation: moves its results, and counts what it used."""

    def __init__(self, directory: Path) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._directory = directory
        #: By address; a mapping lives as long as its tensors.
        self._mapped: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._used_bytes = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        taken = {_address(leaf) for leaf in tree_leaves((args, given)) if _is_large(leaf)}

        def placed(leaf: Any) -> Any:
            # A result that lies in an argument's memory is that argument, or a view of it.
            if not _is_large(leaf) or _address(leaf) in {*taken, *self._mapped}:
                return leaf
            moved = self._moved(leaf)
            taken.add(_address(moved))
            return moved

        result = tree_map(placed, func(*args, **given))
        self._count(taken)
        return result

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        elements = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        if elements != tensor.numel():
            return tensor  # its elements overlap, or have gaps between
        memory = _map(self._directory, tensor.nbytes)
        self._mapped[ctypes.addressof(memory)] = memory
        flat = torch.frombuffer(memory, dtype=torch.uint8).view(tensor.dtype)
        return flat.as_strided(tensor.shape, tensor.stride()).copy_(tensor)

    def _count(self, addresses: set[int]) -> None:
        used = (self._mapped.get(address) for address in addresses)
        self._used_bytes += sum(ctypes.sizeof(memory) for memory in used if memory is not None)
        if self._used_bytes > RESIDENT_BYTES:
            # All of them, as not only operations write there. The files have what was written, and
            # whoever reads it next gets it from them.
            for address, memory in self._mapped.items():
                _C.madvise(address, ctypes.sizeof(memory), mmap.MADV_DONTNEED)
            if hasattr(_C, "malloc_trim"):  # glibc keeps blocks of up to 32 MiB that were freed
                _C.malloc_trim(0)
            self._used_bytes = 0


def _is_large(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.device.type == "cpu"
        and value.layout is torch.strided
        and value.untyped_storage().nbytes() >= LARGE_BYTES
    )


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _map(directory: Path, nbytes: int) -> Any:
    """Memory that is a file's; both go with the last reference to it."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            # Else a full disk ends the process by a signal, at the first write.
            os.posix_fallocate(file.fileno(), 0, nbytes)
            access = mmap.PROT_READ | mmap.PROT_WRITE
            address = _C.mmap(None, nbytes, access, mmap.MAP_SHARED, file.fileno(), 0)
            if address == ctypes.c_void_p(-1).value:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    except OSError as error:
        raise RequestError(
            f"no {nbytes} bytes in {directory} for a tensor of the whole model, as a cut one is "
            f"tried from files, several times its parameters: {error.strerror}: make room"
        ) from error
    memory = (ctypes.c_ubyte * nbytes).from_address(address)
    weakref.finalize(memory, _C.munmap, address, nbytes).atexit = False
    return memory
