"""Loops that numba compiles once on a machine, and that are read from then on, without numba.

What numba compiled is kept beside the source, or in the user's cache, for this CPU and this version
of LLVM (`native`). Loops are plain Python, too: whoever has no numba runs something else, or them
as they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import FunctionType
from typing import Any

from dayfly import native
from dayfly.errors import RequestError
from dayfly.native import Argument, Array, Made


def has_numba() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


@dataclass(frozen=True)
class Loops:
    """Functions that are compiled together.

    Args:
        modules: where they are; each may use functions of those before it. Functions of the last
            one are called from outside.
        signatures: gives the arguments of those, by name.
        options: further ones of `numba.njit`, for all of them.
    """

    modules: tuple[str, ...]
    signatures: Callable[[], Mapping[str, Sequence[Argument]]]
    options: Mapping[str, bool] = field(default_factory=dict)

    def load(self) -> dict[str, Callable[..., Any]]:
        """Returns the compiled functions: from the file of an earlier compilation, if there is one
        for this source and machine; else they are compiled now, and written to that file.

        Raises:
            RequestError: numba is not installed.
        """
        _need_numba()
        signatures = self.signatures()
        found = native.kept(self._places, self._key)
        if found is None:
            functions = self._own(no_cpython_wrapper=True, no_cfunc_wrapper=True)
            made = _machine_code({name: functions[name] for name in signatures}, signatures)
            if made is None:  # by a numba with other conventions: each process compiles
                functions = self._own()
                return {name: functions[name] for name in signatures}
            native.keep(self._places, self._key, *made)
            found = made
        return dict(native.linked(*found, signatures))

    def are_cached(self) -> bool:
        """Whether `load` need not compile.

        Raises:
            RequestError: numba is not installed.
        """
        _need_numba()
        return native.kept(self._places, self._key) is not None

    @cached_property
    def _key(self) -> str:
        """Of all that the code is made of."""
        made_of = sha256()
        for name in (*self.modules, __name__, native.__name__):
            made_of.update(_file(name).read_bytes())
        numba_since = _file("numba.__init__").stat().st_mtime_ns
        given = (dict(self.signatures()), dict(self.options), native.machine(), numba_since)
        made_of.update(repr(given).encode())
        return made_of.hexdigest()

    @cached_property
    def _places(self) -> tuple[Path, Path]:
        """Where the code may be kept: a machine of another kind has other files."""
        source = _file(self.modules[-1])
        of_machine = sha256(native.machine().encode()).hexdigest()[:12]
        user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dayfly"
        return (
            source.parent / "__pycache__" / f"{source.stem}.{of_machine}.loops",
            user / f"{self.modules[-1]}.{of_machine}.loops",
        )

    def _own(self, **options: bool) -> dict[str, Any]:
        """All functions, of modules of their own, where they call each other compiled."""
        every: list[dict[str, Any]] = []
        functions: dict[str, Any] = {}
        for name in self.modules:
            spec = find_spec(name)
            assert spec is not None, f"{name} was imported"
            assert spec.loader is not None, f"{name} is a file"
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            names = vars(module)
            every.append(names)
            functions |= {
                key: one
                for key, one in names.items()
                if isinstance(one, FunctionType) and one.__globals__ is names
            }
        jit = import_module("numba").njit(nogil=True, **self.options, **options)
        compiled = {key: jit(one) for key, one in functions.items()}
        for names in every:
            names.update(compiled)
        return compiled


#: LLVM IR of what compiled loops call in numba's runtime: functions that allocate and free arrays.
#: An allocation begins with numba's header of 40 bytes: reference count, two unused words, address
#: and size of the data.
_MEMORY = """
declare ptr @malloc(i64)
declare void @free(ptr)

define ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %align) {
  %alignment = zext i32 %align to i64
  %before = add i64 %alignment, 40
  %room = add i64 %size, %before
  %owner = call ptr @malloc(i64 %room)
  %none = icmp eq ptr %owner, null
  br i1 %none, label %end, label %fill
fill:
  %begin = ptrtoint ptr %owner to i64
  %behind = add i64 %begin, %before
  %mask = sub i64 0, %alignment
  %aligned = and i64 %behind, %mask
  store i64 1, ptr %owner
  %others = getelementptr i64, ptr %owner, i64 1
  store i64 0, ptr %others
  %other = getelementptr i64, ptr %owner, i64 2
  store i64 0, ptr %other
  %address = getelementptr i64, ptr %owner, i64 3
  store i64 %aligned, ptr %address
  %bytes = getelementptr i64, ptr %owner, i64 4
  store i64 %size, ptr %bytes
  br label %end
end:
  ret ptr %owner
}

define void @NRT_MemInfo_call_dtor(ptr %owner) {
  call void @free(ptr %owner)
  ret void
}
"""
#: Functions of the C library that compiled loops may call. Code that calls anything else, such as
#: Python or the rest of numba's runtime, cannot be kept.
_OF_THE_PROCESS = {"malloc", "free", "memcpy", "memmove", "memset"}


def _machine_code(
    loops: Mapping[str, Any], signatures: Mapping[str, Sequence[Argument]]
) -> tuple[bytes, dict[str, Made]] | None:
    """Compiles loops to an object file; None: they call what is not in `_OF_THE_PROCESS`, or have
    another calling convention than `native` knows."""
    import llvmlite.binding as llvm
    from numba import types

    every: dict[str, Made] = {}
    whole = llvm.parse_assembly(_MEMORY)
    for name, loop in loops.items():
        loop.compile(tuple(_numba_type(one) for one in signatures[name]))
        (compiled,) = loop.overloads.values()
        module = llvm.parse_assembly(compiled.library.get_llvm_str())
        symbol = compiled.fndesc.llvm_func_name
        expected = ["ptr", "ptr", *native.words(signatures[name])]
        if [str(one.type) for one in module.get_function(symbol).arguments] != expected:
            return None
        returned = compiled.signature.return_type
        one = not isinstance(returned, types.BaseTuple)
        results = [_result(each) for each in ([returned] if one else returned)]
        every[name] = Made(symbol, tuple(each for each in results if each is not None), one)
        if None in results:
            return None
        whole.triple, whole.data_layout = module.triple, module.data_layout
        whole.link_in(module)
    needed = {one.name for one in whole.functions if one.is_declaration}
    needed |= {one.name for one in whole.global_variables if one.is_declaration}
    if {name for name in needed if not name.startswith("llvm.")} - _OF_THE_PROCESS:
        return None
    target = llvm.Target.from_triple(whole.triple).create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
        codemodel="default",
    )
    return target.emit_object(whole), every


def _numba_type(argument: Argument) -> Any:
    numba: Any = import_module("numba")
    if isinstance(argument, str):
        return getattr(numba, argument)
    if isinstance(argument, Array):
        return numba.types.Array(numba.from_dtype(argument.dtype), argument.ndim, "C")
    return numba.types.NamedTuple(list(map(_numba_type, argument.fields)), argument.kind)


def _result(returned: Any) -> tuple[str, int] | None:
    """Type of items and dimensions of what a loop returns; None: it is something else."""
    from numba import types
    from numba.np.numpy_support import as_dtype

    if isinstance(returned, types.Array):
        return (as_dtype(returned.dtype).str, returned.ndim) if returned.layout == "C" else None
    return (str(returned), 0) if returned in (types.int64, types.float64) else None


def _file(module: str) -> Path:
    """Where a module's source is; only the package that it is in is looked for."""
    package, *names = module.split(".")
    spec = find_spec(package)
    assert spec is not None, f"{package} is installed"
    assert spec.origin is not None, f"{package} has files"
    origin = Path(spec.origin)
    return origin.parent.joinpath(*names).with_suffix(".py") if names else origin


def _need_numba() -> None:
    if not has_numba():
        raise RequestError(
            "compiled loops need numba: pip install 'dayfly[fast]', or do without them"
        )
