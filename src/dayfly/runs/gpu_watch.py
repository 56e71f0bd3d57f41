"""How busy a function's GPU is, as nvidia-smi says of it: of all that runs there, not of it alone.

epoch       |      1      |      2      |
asked        x  x  x  x  x  x  x  x  x  x      every few seconds, by a thread
told                      ^mean         ^mean
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable

import torch

from dayfly.closing import Closing
from dayfly.threads import start_thread

#: Seconds between two looks: each starts a program, which takes some hundredths of a second.
EVERY_S = 2.0
#: Longest that one may take, in seconds.
_PATIENCE_S = 10.0


def utilisation_in(text: str) -> float | None:
    """Returns what `nvidia-smi` says of one GPU as a share, 0 to 1; None where it does not say it.

    Args:
        text: of `--query-gpu=utilization.gpu --format=csv,noheader,nounits`, such as `37`.
    """
    words = text.strip().removesuffix("%").strip()
    return min(1.0, int(words) / 100) if words.isdecimal() else None


def ask_nvidia_smi() -> float | None:
    """Asks about the GPU that this process sees; None if there is no such program, or it fails."""
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    query = ("--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", f"--id={gpu}")
    try:
        done = subprocess.run(
            ["nvidia-smi", *query], capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return utilisation_in(done.stdout)


class GpuWatch(Closing):
    """Looks at a GPU now and then. Of a CPU it says nothing, and has no thread.

    Args:
        device: of the function.
        ask: returns a utilisation, 0 to 1, or None.
        every_s: seconds between two looks.
    """

    def __init__(
        self,
        device: torch.device,
        ask: Callable[[], float | None] = ask_nvidia_smi,
        every_s: float = EVERY_S,
    ) -> None:
        self._ask, self._every_s = ask, every_s
        self._seen: list[float] = []
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        if device.type == "cuda":
            self._thread = start_thread(self._run, name="dayfly-gpu", failed=lambda error: None)

    def take(self) -> float | None:
        """Returns the mean since it was last asked; None if nothing was seen."""
        seen, self._seen = self._seen, []
        return sum(seen) / len(seen) if seen else None

    def _run(self) -> None:
        while not self._closing.wait(self._every_s):
            if (seen := self._ask()) is None:
                return
            self._seen.append(seen)

    def close(self) -> None:
        """Ends the thread."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
