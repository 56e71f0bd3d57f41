"""Machine code of loops: kept in a file, linked by LLVM into this process, and called with arrays.

numba makes the code (`compiled`), and is not needed to run it: importing numba and reading its own
cache takes several times as long as linking this file.

A file has one line of JSON, then an object file. The line has a key (a digest of the sources and
of all else that the code depends on), the code's SHA-256, and for each loop its symbol and the
types of its results. A file is used only if key and SHA-256 match, and if no user but this one and
root can write it.

Loops have numba's calling convention: address of the result, address of an error object, then the
arguments; they return 0. An array is passed as several arguments: its allocation, its Python
object, number and size of items, address, shape and strides. The first two are null here.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

#: Types of scalar arguments, by numba's names: the ctypes type, and the type in LLVM IR.
NUMBERS: dict[str, tuple[Any, str]] = {
    "int64": (ctypes.c_int64, "i64"),
    "float64": (ctypes.c_double, "double"),
    "boolean": (ctypes.c_bool, "i8"),
}


@dataclass(frozen=True, slots=True)
class Array:
    """An argument: an array in C order.

    Args:
        dtype: of its items.
        ndim: number of dimensions.
    """

    dtype: np.dtype[Any]
    ndim: int


@dataclass(frozen=True, slots=True)
class Arrays:
    """An argument: a named tuple of arrays.

    Args:
        kind: the tuple's type.
        fields: the arrays, in its order.
    """

    kind: type
    fields: tuple[Array, ...]


#: A number's name, or arrays.
Argument = str | Array | Arrays


@dataclass(frozen=True, slots=True)
class Made:
    """A compiled loop in machine code.

    Attributes:
        symbol: its name there.
        results: type of items and number of dimensions of each result; of numbers that is 0.
        one: it returns its only result, and not a tuple.
    """

    symbol: str
    results: tuple[tuple[str, int], ...]
    one: bool


def words(takes: Sequence[Argument]) -> list[str]:
    """Returns the types of a loop's arguments in LLVM IR; an array is several of them."""
    of_array = ("ptr", "ptr", "i64", "i64", "ptr")
    each = (
        (*of_array, *["i64"] * (2 * one.ndim)) if isinstance(one, Array) else (NUMBERS[one][1],)
        for one in _flat(takes)
    )
    return list(chain.from_iterable(each))


def _flat(takes: Sequence[Argument]) -> Iterator[str | Array]:
    for one in takes:
        yield from one.fields if isinstance(one, Arrays) else (one,)


class Loop:
    """A linked loop, called as the Python function that it was made of. The GIL is free meanwhile.

    Args:
        made: the loop.
        address: of its code.
        takes: its arguments.
        release: gives up memory that a result lies in, by its owner; None: it has none.
    """

    def __init__(
        self,
        made: Made,
        address: int,
        takes: Sequence[Argument],
        release: Callable[[int], None] | None,
    ) -> None:
        self._made, self._takes, self._release = made, takes, release
        self._flat = [
            (one.dtype, one.ndim) if isinstance(one, Array) else (None, 0) for one in _flat(takes)
        ]
        in_c = {llvm: c for c, llvm in NUMBERS.values()} | {"ptr": ctypes.c_void_p}
        each = [in_c[word] for word in words(takes)]
        pointer = ctypes.c_void_p
        self._call = ctypes.CFUNCTYPE(ctypes.c_int32, pointer, pointer, *each)(address)
        self._room = ctypes.c_int64 * sum(5 + 2 * n if n else 1 for _, n in made.results)

    def __call__(self, *arguments: Any) -> Any:
        """Runs the loop.

        Raises:
            TypeError: an argument has another type than the loop was compiled for.
            RuntimeError: the loop failed, such as for want of memory.
        """
        if len(self._flat) != len(self._takes):
            arguments = tuple(
                value
                for one, given in zip(self._takes, arguments, strict=True)
                for value in (given if isinstance(one, Arrays) else (given,))
            )
        words: list[Any] = []
        for (dtype, ndim), value in zip(self._flat, arguments, strict=True):
            if dtype is None:
                words.append(value)
                continue
            shape = value.shape
            if len(shape) != ndim or value.dtype != dtype or not value.flags.c_contiguous:
                raise TypeError(f"an array is not one of {ndim} dimensions of {dtype} in C order")
            address = value.ctypes.data  # the caller keeps the array
            words += (None, None, value.size, value.itemsize, address, *shape, *value.strides)
        found, error = self._room(), ctypes.c_void_p()
        if status := self._call(ctypes.addressof(found), ctypes.addressof(error), *words):
            raise RuntimeError(f"the compiled loop {self._made.symbol} failed with {status}")
        results = tuple(self._results(found))
        return results[0] if self._made.one else results

    def _results(self, found: Any) -> Iterator[Any]:
        """Copies arrays out of the loop's memory."""
        at = 0
        for dtype, ndim in self._made.results:
            if not ndim:
                yield (
                    ctypes.c_double.from_buffer(found, 8 * at).value
                    if dtype == "float64"
                    else (found[at])
                )
                at += 1
                continue
            owner, data = found[at], found[at + 4]
            array = np.empty(found[at + 5 : at + 5 + ndim], dtype)
            ctypes.memmove(array.ctypes.data, data, array.nbytes)
            if owner and self._release is not None:
                self._release(owner)
            yield array
            at += 5 + 2 * ndim


@cache
def machine() -> str:
    """Returns what compiled code depends on besides its source: LLVM version, CPU and its features.

    Raises:
        ImportError: llvmlite is not installed.
    """
    import llvmlite.binding as llvm

    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return f"{llvm.llvm_version_info} {llvm.get_process_triple()} {cpu} {features}"


def linked(
    code: bytes, every: Mapping[str, Made], takes: Mapping[str, Sequence[Argument]]
) -> dict[str, Loop]:
    """Returns loops of an object file that came from `kept`, or was made here.

    Raises:
        RuntimeError: LLVM cannot link it.
    """
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    jit = llvm.create_lljit_compiler()
    builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    has_memory = any(ndim for made in every.values() for _, ndim in made.results)
    for symbol in (*(made.symbol for made in every.values()), *([RELEASE] if has_memory else [])):
        builder.export_symbol(symbol)
    library = builder.link(jit, "loops")
    release = None
    if has_memory:
        release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library[RELEASE])
    for one in (jit, library):
        one.detach()  # the code lives as long as the process
    return {
        name: Loop(made, library[made.symbol], takes[name], release) for name, made in every.items()
    }


#: Symbol of the function that lowers the reference count of an array, and frees it at 0. numba adds
#: it to each module that allocates arrays.
RELEASE = "NRT_decref"


def kept(places: Iterable[Path], key: str) -> tuple[bytes, dict[str, Made]] | None:
    """Returns the code of the first file that has this key; None: no file has, or may be read."""
    for file in places:
        with suppress(OSError, ValueError, KeyError, TypeError):
            content = _trusted(file)
            line, _, code = content.partition(b"\n")
            head = json.loads(line)
            if head["key"] == key and head["sha256"] == sha256(code).hexdigest():
                return code, {
                    name: Made(symbol, tuple((dtype, ndim) for dtype, ndim in results), one)
                    for name, (symbol, results, one) in head["loops"].items()
                }
    return None


def _trusted(file: Path) -> bytes:
    """Reads a file. Raises PermissionError if a user other than this one and root can write it."""
    fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(fd, "rb") as opened:
        state = os.fstat(fd)
        mine = state.st_uid in (0, os.geteuid()) and not state.st_mode & 0o022
        if not stat.S_ISREG(state.st_mode) or not mine:
            raise PermissionError(f"{file} may be another user's")
        return opened.read()


def keep(places: Iterable[Path], key: str, code: bytes, every: Mapping[str, Made]) -> None:
    """Writes the code where it can be written first; nowhere, if nowhere it can."""
    loops = {name: (made.symbol, made.results, made.one) for name, made in every.items()}
    head = {"key": key, "sha256": sha256(code).hexdigest(), "loops": loops}
    for file in places:
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            fd, name = tempfile.mkstemp(prefix=f"{file.name}.", dir=file.parent)
            try:
                with open(fd, "wb") as opened:
                    opened.write(json.dumps(head).encode() + b"\n" + code)
                    os.fchmod(fd, 0o644)
                os.replace(name, file)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
            return
