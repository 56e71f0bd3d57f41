"""Keeps torch's compiler, and sympy, unloaded in a process until something compiles.

`torch.optim` imports all of `torch._dynamo` with the first optimizer, only to mark methods as not
to be compiled. That takes as long as `import torch` itself, and a cold function is billed for it.
A backward pass from given gradients, as a stage's, imports `torch.fx.experimental.symbolic_shapes`
and sympy with it, only to compare shapes of plain numbers: another half second of CPU time, and 40
MiB. Stand-ins take the modules' places. They answer what
eager training asks of them; whatever else is asked loads the real module, which takes its place
again.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

_COMPILER, _SHAPES = "torch._dynamo", "torch.fx.experimental.symbolic_shapes"


def leave_compiler_unloaded() -> None:
    """Puts the stand-ins in their places; does nothing where the compiler is loaded.

    For processes that are ours: the command's, and those that functions are forked from. It imports
    torch first, as that looks at the compiler's place while it is being imported.
    """
    import torch

    if _COMPILER not in sys.modules:
        sys.modules[_COMPILER] = vars(torch)["_dynamo"] = _Compiler(_COMPILER)
    if _SHAPES not in sys.modules:
        sys.modules[_SHAPES] = _Shapes(_SHAPES)


class _StandIn(ModuleType):
    """A module until anything is needed of it but what a class derived from this answers."""

    _is_package = False

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__dict__["_loading"] = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        # Who looks through all modules, as `inspect.getmodule` does, wants no compiler, and may be
        # within an import that the compiler's own would need; imports ask packages for `__path__`.
        if name.startswith("__") and not (name == "__path__" and self._is_package):
            raise AttributeError(f"the stand-in for {self.__name__} has no {name}")
        return getattr(self._load(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        # The import system binds a submodule to whatever it found as its parent.
        setattr(self._load(), name, value)

    @property
    def _stands_in(self) -> bool:
        return sys.modules.get(self.__name__) is self

    def _load(self) -> Any:
        """Returns the real module, which from here on is the one that imports find."""
        with self.__dict__["_loading"]:
            if self._stands_in:
                del sys.modules[self.__name__]
            return importlib.import_module(self.__name__)


class _Compiler(_StandIn):
    """`torch._dynamo`, of which eager training needs `disable` and `graph_break`."""

    _is_package = True

    def disable(self, fn: Callable[..., Any] | None = None, *args: Any, **kwargs: Any) -> Any:
        """Returns the function, to be passed over by the compiler once that is loaded.

        Args:
            fn: the function; None asks for a decorator, as torch's own does.
            args: further arguments of `torch._dynamo.disable`.
            kwargs: likewise.
        """
        if fn is None:
            return self._load().disable(fn, *args, **kwargs)
        passed_over: Callable[..., Any] | None = None

        @functools.wraps(fn)
        def call(*given: Any, **named: Any) -> Any:
            nonlocal passed_over
            if self._stands_in:
                return fn(*given, **named)
            if passed_over is None:
                passed_over = self._load().disable(fn, *args, **kwargs)
            return passed_over(*given, **named)

        return call

    def graph_break(self, *args: Any) -> None:
        """Does nothing: no graph is being traced while the compiler is not loaded."""
        if not self._stands_in:
            self._load().graph_break(*args)


class _Shapes(_StandIn):
    """`torch.fx.experimental.symbolic_shapes`, for sizes and conditions without symbols."""

    def expect_true(self, condition: Any, *args: Any, **kwargs: Any) -> Any:
        """Returns a condition that is known."""
        known = isinstance(condition, bool)
        return condition if known else self._load().expect_true(condition, *args, **kwargs)

    def sym_eq(self, one: Any, other: Any) -> Any:
        """Returns whether two shapes, or sizes, are equal."""
        plain = _is_plain(one) and _is_plain(other)
        return one == other if plain else self._load().sym_eq(one, other)


def _is_plain(size: Any) -> bool:
    return all(type(one) is int for one in (size if isinstance(size, tuple) else (size,)))
