"""Keeps torch's compiler unloaded in a process until something compiles.

`torch.optim` imports all of `torch._dynamo` with the first optimizer, only to mark methods as not
to be compiled. That takes as long as `import torch` itself, and a cold function is billed for it.
A stand-in takes the module's place. It answers the two calls that eager training makes, `disable`
and `graph_break`; whatever else is asked of it loads the real module, which takes its place again.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

_COMPILER = "torch._dynamo"


def leave_compiler_unloaded() -> None:
    """Puts the stand-in in the compiler's place; does nothing where the compiler is loaded.

    For processes that are ours: the command's, and those that functions are forked from. It imports
    torch first, as that looks at the compiler's place while it is being imported.
    """
    import torch

    if _COMPILER not in sys.modules:
        sys.modules[_COMPILER] = vars(torch)["_dynamo"] = _StandIn(_COMPILER)


class _StandIn(ModuleType):
    """`torch._dynamo` until anything but `disable` and `graph_break` is needed of it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__dict__["_loading"] = threading.RLock()

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
            if sys.modules.get(_COMPILER) is self:
                return fn(*given, **named)
            if passed_over is None:
                passed_over = self._load().disable(fn, *args, **kwargs)
            return passed_over(*given, **named)

        return call

    def graph_break(self, *args: Any) -> None:
        """Does nothing: no graph is being traced while the compiler is not loaded."""
        if sys.modules.get(_COMPILER) is not self:
            self._load().graph_break(*args)

    def __getattr__(self, name: str) -> Any:
        # Who looks through all modules, as `inspect.getmodule` does, wants no compiler, and may be
        # within an import that the compiler's own would need; imports ask for `__path__`.
        if name.startswith("__") and name != "__path__":
            raise AttributeError(f"the stand-in for {_COMPILER} has no {name}")
        return getattr(self._load(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        # The import system binds a submodule to whatever it found as its parent.
        setattr(self._load(), name, value)

    def _load(self) -> Any:
        """Returns the real module, which from here on is the one that imports find."""
        with self.__dict__["_loading"]:
            if sys.modules.get(_COMPILER) is self:
                del sys.modules[_COMPILER]
            return importlib.import_module(_COMPILER)
