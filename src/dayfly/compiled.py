"""Loops that numba compiles once on a machine, and that are read from then on.

numba keeps what it compiled beside the source, for this CPU and this version of it. Loops are plain
Python, too: whoever has no numba runs something else, or them as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import FunctionType
from typing import Any

from dayfly.errors import RequestError


def has_numba() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


@dataclass(frozen=True, slots=True)
class Loops:
    """Functions that are compiled together.

    Args:
        modules: where they are; each may use functions of those before it. Functions of the last
            one are called from outside.
        signatures: types of the arguments of those, by name, in the order in which they are
            compiled; it is called with numba.
        options: further ones of `numba.njit`, for all of them.
    """

    modules: tuple[str, ...]
    signatures: Callable[[Any], Mapping[str, tuple[Any, ...]]]
    options: Mapping[str, bool] = field(default_factory=dict)

    def load(self) -> dict[str, Any]:
        """Returns the functions, read from the cache, or else compiled.

        Raises:
            RequestError: numba is not installed.
        """
        numba, found, missing = _numba(), {}, {}
        module = import_module(self.modules[-1])
        with _reading(numba) as context:
            for name, signature in self.signatures(numba).items():
                loop = self._loop(numba, getattr(module, name))
                read = loop._cache.load_overload(signature, context)
                found[name] = loop
                if read is None:
                    missing[name] = signature
                else:
                    loop.add_overload(read)
        own = self._own(numba) if missing else {}
        for name, signature in missing.items():
            found[name] = self._loop(numba, own[name])
            found[name].compile(signature)
        return found

    def are_cached(self) -> bool:
        """Whether `load` need not compile: the last of them is in the cache, as it is now.

        Raises:
            RequestError: numba is not installed.
        """
        numba = _numba()
        *_, (name, signature) = self.signatures(numba).items()
        cached = self._loop(numba, getattr(import_module(self.modules[-1]), name))._cache
        with _reading(numba) as context:
            key = cached._index_key(signature, context.codegen())
        return key in cached._cache_file._load_index()

    def _loop(self, numba: Any, function: Any) -> Any:
        """It, not compiled yet; what is in the cache holds while files and options do."""
        loop = numba.njit(cache=True, nogil=True, **self.options)(function)
        files = [Path(str(import_module(name).__file__)).stat() for name in self.modules]
        stamp = [(one.st_mtime, one.st_size) for one in files]
        loop._cache._cache_file._source_stamp = [*stamp, *self.options.items()]
        return loop

    def _own(self, numba: Any) -> dict[str, Any]:
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
        jit = numba.njit(nogil=True, **self.options)
        compiled = {key: jit(one) for key, one in functions.items()}
        for names in every:
            names.update(compiled)
        return functions


@contextmanager
def _reading(numba: Any) -> Iterator[Any]:
    """While compiled code is read numba loads nothing that only compiling needs, which takes 0.4 s.

    Yields its context of this CPU. What compiles afterwards loads all as ever.
    """
    context = numba.core.registry.cpu_target.target_context
    numba.core.runtime.rtsys.initialize(context)  # what compiled code allocates memory by
    context.refresh = lambda: None
    try:
        yield context
    finally:
        del context.refresh


def _numba() -> Any:
    try:
        return import_module("numba")
    except ImportError:
        raise RequestError(
            "compiled loops need numba: pip install 'dayfly[fast]', or do without them"
        ) from None
