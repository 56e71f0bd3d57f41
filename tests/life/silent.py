"""What of a platform the loops over functions do not ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from dayfly.life.platforms.base import LogText, Opening, Platform
from dayfly.specs.functions import FunctionSpec


class Silent(Platform):
    """Takes any request, and prints nothing."""

    name = "silent"

    @classmethod
    def open(cls, opening: Opening, options: Any) -> Self:
        raise AssertionError("tests make it themselves")

    def check(self, specs: Sequence[FunctionSpec]) -> Sequence[str]:
        return ()

    def least_memory_mib(self) -> int:
        return 1

    def log(self, function: str, after: str = "") -> LogText:
        return LogText(b"", after)

    def log_end(self, function: str) -> str:
        return ""

    def log_place(self, function: str) -> str:
        return "nowhere"
