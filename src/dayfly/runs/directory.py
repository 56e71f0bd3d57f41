"""A run's directory: `run.json`, which says what is being run, and the lock of who runs it."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from dayfly.errors import RequestError
from dayfly.life.reports import plain
from dayfly.runs.settings import Settings
from dayfly.runs.shipping import Shipped
from dayfly.train.arrays import Part
from dayfly.wire.collectives import K_REDUCE
from dayfly.wire.store import FileStore

_FORMAT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What `run.json` holds: enough, with the checkpoint, to continue the run.

    generation: how often all workers started anew before: in other lives, and in rollbacks, of
    which there were so many. round_bytes: size of what is summed over the workers in a
    round. began_at: of this life, in Unix seconds. wall_s: of the lives before. made_with: what
    bits depend on.
    """

    run_id: str
    settings: Settings
    shipped: Shipped
    parts: tuple[Part, ...]
    samples: int
    round_bytes: int
    generation: int = 0
    rollbacks: int = 0
    status: str = "running"
    error: str | None = None
    began_at: float = field(default_factory=time.time)
    wall_s: float = 0.0
    result: Mapping[str, Any] | None = None
    made_with: Mapping[str, str] | None = None

    def save(self, store: FileStore) -> None:
        """Write it, whole or not at all."""
        store.put("run.json", json.dumps({"format": _FORMAT, **asdict(self)}, indent=1).encode())

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read it back. Raises RequestError if the directory holds no run."""
        file = directory / "run.json"
        try:
            tree = json.loads(file.read_text())
        except FileNotFoundError:
            raise RequestError(f"{str(directory)!r} holds no run: it has no run.json") from None
        except (OSError, json.JSONDecodeError) as error:
            raise RequestError(f"{file} cannot be read: {error}") from error
        if tree.pop("format", None) != _FORMAT:
            raise RequestError(f"{file} was written by another version of dayfly")
        try:
            made = {
                "settings": Settings.load(tree["settings"]),
                "shipped": Shipped(**tree["shipped"]),
                "parts": tuple(Part.load(part) for part in tree["parts"]),
            }
            return cls(**{**tree, **made})
        except (KeyError, TypeError) as error:
            raise RequestError(f"{file} was written by another version of dayfly") from error

    def rolled_back(self) -> Self:
        """The record of the next generation of the same life."""
        return replace(self, generation=self.generation + 1, rollbacks=self.rollbacks + 1)

    def next_life(self, heard_at: float | None, **changes: Any) -> Self:
        """The record of the life that continues this run.

        heard_at: when the last was heard of this one, for one whose coordinator was killed. Raises
        RequestError for changes of what the checkpoint depends on.
        """
        known = {name: value for name, value in changes.items() if value is not None}
        for name in ("sync", "k", "compress"):
            if name in known and known[name] != (now := getattr(self.settings, name)):
                raise RequestError(
                    f"--{name} {known[name]}: the run in the directory goes on as it began, with "
                    f"{now}: leave it out"
                )
        if known.get("collective", K_REDUCE) != K_REDUCE:
            known.setdefault("aggregators", None)  # those of the run so far are of no use to it
        killed_s = 0.0
        if self.status == "running" and heard_at is not None:
            killed_s = max(0.0, heard_at - self.began_at)
        return replace(
            self,
            generation=self.generation + 1,
            settings=replace(self.settings, **known),
            status="running",
            error=None,
            began_at=time.time(),
            wall_s=self.wall_s + killed_s,
        )


def made_with() -> dict[str, str]:
    """What the bits of a run depend on besides its seed."""
    return {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "machine": platform.machine(),
        "threads": "1",
    }


def write_json(store: FileStore, name: str, tree: Any) -> None:
    """Write a result for people and programs to read; numbers that are none become null."""
    store.put(name, json.dumps(plain(tree), indent=1, allow_nan=False).encode())


def new_run_id(name: str) -> str:
    """A name that no other run has: what is run, when, and four random digits."""
    word = "".join(letter if letter.isalnum() else "-" for letter in name.lower())[:24].strip("-")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return f"{word or 'job'}-{stamp}-{secrets.token_hex(2)}"


def new_directory(directory: Path) -> None:
    """Make a run's directory. Raises RequestError if there is something in it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        taken = any(directory.iterdir())
    except OSError as error:
        raise RequestError(f"run directory {str(directory)!r}: {error.strerror}") from error
    if taken:
        raise RequestError(
            f"run directory {str(directory)!r} is not empty: name another one, or continue the run "
            f"in it with --resume {directory}"
        )


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the run for this process. Raises RequestError if another one runs it.

    The kernel lets go of the lock with the process, however that ends.
    """
    with (directory / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise RequestError(
                f"run {str(directory)!r} is being run by process {file.read().strip()}"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
