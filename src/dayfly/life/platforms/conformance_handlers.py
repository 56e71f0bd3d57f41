"""What the platforms' conformance suite runs as functions."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import Any

import torch

from dayfly.life.platforms.base import Context, Json


def echo(payload: Json, context: Context) -> Json:
    """Returns what it was given."""
    return dict(payload)


def tell(payload: Json, context: Context) -> Json:
    """What a function knows about itself."""
    return {
        "function": context.function,
        "attempt": context.attempt,
        "memory_mib": context.memory_mib,
        "remaining_s": None if context.deadline is None else context.remaining_s(),
        "threads": torch.get_num_threads(),
        "variable": os.environ.get("A_NAME"),
    }


def train(payload: Json, context: Context) -> Json:
    """Computes forward and backward, and takes a step."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
    loss = model(torch.randn(256, 512)).square().mean()
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    return {"loss": loss.item()}


def raise_error(payload: Json, context: Context) -> Json:
    """Raises, one call down."""

    def inner() -> None:
        raise ValueError("no luck")

    inner()
    return {}


def print_lines(payload: Json, context: Context) -> Json:
    """Writes to both streams; with `die`, ends by a signal without another word."""
    print(f"out {payload['word']}")
    print(f"err {payload['word']}", file=sys.stderr)
    if payload.get("die"):
        os.kill(os.getpid(), signal.SIGKILL)
    return {}


def exit_by_system_exit(payload: Json, context: Context) -> Json:
    """Ends as a program does."""
    sys.exit(payload["code"])


def exit_hard(payload: Json, context: Context) -> Json:
    """Ends without a word."""
    os._exit(payload["code"])


def stop_itself(payload: Json, context: Context) -> Json:
    """Does nothing until somebody lets it go on."""
    os.kill(os.getpid(), signal.SIGSTOP)
    return {}


def interrupt(payload: Json, context: Context) -> Json:
    """As if somebody pressed Ctrl-C."""
    raise KeyboardInterrupt


def crash(payload: Json, context: Context) -> Json:
    """Ends by a fault of memory."""
    ctypes.string_at(0)
    return {}


def return_tensor(payload: Json, context: Context) -> Any:
    """No JSON."""
    return {"weights": torch.zeros(2)}


def return_number(payload: Json, context: Context) -> Any:
    """JSON, but no object."""
    return 3


def return_bytes(payload: Json, context: Context) -> Json:
    """Returns a text of so many bytes."""
    return {"text": "x" * payload["size"]}


def allocate(payload: Json, context: Context) -> Json:
    """Holds so many MiB, written, for an instant."""
    held = []
    for _ in range(payload["mib"]):
        held.append(torch.ones(2**20 // 4))
    return {"mib": len(held)}


def sleep(payload: Json, context: Context) -> Json:
    """Says so, then sleeps."""
    print("asleep", flush=True)
    time.sleep(payload["seconds"])
    return {"slept_s": payload["seconds"]}
