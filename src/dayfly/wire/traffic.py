"""What this process moved through a channel or a store, counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock

#: What is counted, by name.
COUNTERS = ("bytes_up", "bytes_down", "requests", "puts", "gets")


@dataclass(slots=True)
class Traffic:
    """Bytes and requests, counted by this process. Of messages, payload and header bytes.

    requests: puts, gets, and questions whether something is there.
    """

    bytes_up: int = 0
    bytes_down: int = 0
    requests: int = 0
    puts: int = 0
    gets: int = 0
    _lock: Lock = field(default_factory=Lock, repr=False)

    def count(self, *, up: int | None = None, down: int | None = None, requests: int = 1) -> None:
        """Add requests to the counters; safe from any thread.

        up: bytes of puts, 0 for one that came second. down: bytes of gets. Neither: what was
        asked moved nothing.
        """
        with self._lock:
            self.bytes_up += up or 0
            self.bytes_down += down or 0
            self.requests += requests
            self.puts += requests if up is not None else 0
            self.gets += requests if down is not None else 0

    def counters(self) -> dict[str, int]:
        """All of them, by name."""
        with self._lock:
            return {name: getattr(self, name) for name in COUNTERS}
