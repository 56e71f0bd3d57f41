"""Logs of functions as files: one file for each function, all in one directory."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from dayfly.life.platforms.base import LogText

#: Read at once.
_LOG_BYTES = 2**20


class LogFiles:
    """The `log` of platforms that write to files. A position is an offset in bytes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self._directory.mkdir(parents=True, exist_ok=True)

    def path(self, function: str) -> Path:
        """The file of a function, all attempts one after another."""
        return self._directory / f"{function}.log"

    def log(self, function: str, after: str = "") -> LogText:
        """As `Platform.log`."""
        start, text = int(after or 0), b""
        with suppress(FileNotFoundError), self.path(function).open("rb") as file:
            file.seek(start)
            text = file.read(_LOG_BYTES)
        return LogText(text, str(start + len(text)))

    def log_end(self, function: str) -> str:
        """As `Platform.log_end`."""
        path = self.path(function)
        return str(path.stat().st_size) if path.exists() else ""
