"""Plain programs of torch.distributed that are measured: no word of dayfly in them.

Each is made in every process of the default group, whatever its backend is, and then takes steps.
`step` gives the loss of this process, or None where it has none.
"""

from __future__ import annotations

from typing import Protocol


class Program(Protocol):
    """One process of a program."""

    def step(self) -> float | None:
        """Take a step, to its end; its loss, if this process knows it."""
