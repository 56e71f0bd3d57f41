"""What the platform tests run as functions."""

from __future__ import annotations

import ctypes
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import torch

from dayfly.life.platforms import footprint
from dayfly.life.platforms.base import Context, Json
from dayfly.life.platforms.conformance_handlers import allocate, echo, return_bytes, tell, train
from dayfly.life.platforms.local_function import current_zygote_pid
from dayfly.life.processor import VARIABLES

__all__ = ["echo", "return_bytes", "tell"]


def look_inside(payload: Json, context: Context) -> Json:
    """What a function of this machine finds: its CPUs, its variables, and its open files."""
    return {
        "cpus": sorted(os.sched_getaffinity(0)),
        "capability": torch.backends.cpu.get_cpu_capability().lower(),
        "variables": {name: os.environ.get(name) for name in VARIABLES},
        "fds": open_files(),
    }


def train_and_look(payload: Json, context: Context) -> Json:
    train(payload, context)
    return {"compiler": "torch._dynamo.eval_frame" in sys.modules}


def open_files() -> list[str]:
    """What the descriptors of this process stand for, sorted."""
    files = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            files.append(os.readlink(f"/proc/self/fd/{fd}"))
    return sorted(files)


def network(payload: Json, context: Context) -> Json:
    """The network namespace of this process."""
    return {"inode": os.stat("/proc/self/ns/net").st_ino}


def free_large_blocks(payload: Json, context: Context) -> Json:
    """Says how much stays of 64 MiB in blocks of several sizes, once they are freed."""
    before = footprint.anonymous_bytes()
    blocks = [torch.ones(mib * 2**18) for mib in (32, 16, 8, 4, 4)]
    del blocks
    return {"stays_mib": (footprint.anonymous_bytes() - before) / 2**20}


def allocate_in_child(payload: Json, context: Context) -> Json:
    """As `allocate`, in a process of its own."""
    child = os.fork()
    if child == 0:
        try:
            allocate(payload, context)
        finally:
            os._exit(1)
    raise RuntimeError(f"the child ended with {os.waitpid(child, 0)[1]}")


def sleep(payload: Json, context: Context) -> Json:
    """Tell its pid in a file, then sleep."""
    tell_pid(payload)
    time.sleep(payload["seconds"])
    return {"slept_s": payload["seconds"]}


def hold_the_lock(payload: Json, context: Context) -> Json:
    """Let no other thread of this process run Python for so long."""
    ctypes.PyDLL(None).usleep(int(payload["seconds"] * 1e6))
    return {}


def spin(payload: Json, context: Context) -> Json:
    """Use so much CPU time, and tell how long that took."""
    began, used = time.monotonic(), time.process_time()
    while time.process_time() - used < payload["cpu_s"]:
        pass
    return {"wall_s": time.monotonic() - began}


def wait_for_file(payload: Json, context: Context) -> Json:
    """Tell its pid, and end as soon as a file is there."""
    tell_pid(payload)
    give_up_at = time.monotonic() + 120
    while not Path(payload["until"]).exists():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"{payload['until']} was not there within 120 s")
        time.sleep(0.005)
    return {"parent": os.getppid()}


def compute_in_c(payload: Json, context: Context) -> Json:
    """Stay in C without ever giving the interpreter lock back."""
    tell_pid(payload)
    ctypes.PyDLL(None).sleep(600)
    return {}


def leave_children(payload: Json, context: Context) -> Json:
    """Start a child in the same POSIX session and one in a new one; leave both behind."""
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    same = subprocess.Popen(["sleep", "61"], **quiet)  # type: ignore[call-overload]
    other = subprocess.Popen(["sleep", "62"], start_new_session=True, **quiet)  # type: ignore[call-overload]
    if payload.get("pid_file"):
        write(payload["pid_file"], f"{os.getpid()} {same.pid} {other.pid}")
        time.sleep(600)
    return {"pids": [same.pid, other.pid]}


def hold_a_semaphore(payload: Json, context: Context) -> Json:
    """Of multiprocessing, whose resource tracker is to remove it; a child uses both, too."""
    context_of_spawn = multiprocessing.get_context("spawn")
    semaphore = context_of_spawn.Semaphore()
    child = context_of_spawn.Process(target=time.sleep, args=[60])
    child.start()
    write(payload["file"], f"/dev/shm/sem.{semaphore._semlock.name[1:]}")  # type: ignore[attr-defined]
    if payload["stays"]:
        child.join()
    return {}


def kill_zygote(payload: Json, context: Context) -> Json:
    os.kill(current_zygote_pid(), signal.SIGKILL)
    return {"killed": current_zygote_pid()}


def tell_pid(payload: Json) -> None:
    if "pid_file" in payload:
        write(payload["pid_file"], str(os.getpid()))


def write(path: str, text: str) -> None:
    """So that whoever sees the file sees all of it."""
    Path(path + ".new").write_text(text)
    os.rename(path + ".new", path)


def tell_zygote(payload: Json, context: Context) -> Json:
    write(payload["file"], str(current_zygote_pid()))
    return {}


def tell_gpu(payload: Json, context: Context) -> Json:
    """The GPU that it sees, and what CUDA would be told as soon as it is initialised.

    There is no GPU here, so the two calls of torch's that the share leads to only note it.
    """
    told: list[list[float]] = []
    size = SimpleNamespace(total_memory=payload["gpu_bytes"])
    torch.cuda.get_device_properties = lambda device: size
    torch.cuda.set_per_process_memory_fraction = lambda part, device: told.append([part, device])
    for queued, _ in torch.cuda._queued_calls:
        if queued.__module__ == "dayfly.life.platforms.gpus":
            queued()
    return {
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "share": context.gpu_share,
        "told": told,
        "initialised": torch.cuda.is_initialized(),
        "by_nvml": os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK"),
    }


def run_out_of_gpu_memory(payload: Json, context: Context) -> Json:
    """As torch says it; in another error if it is asked to."""
    try:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    except torch.OutOfMemoryError as error:
        if payload.get("wrapped"):
            raise ValueError("the batch failed") from error
        raise


def hold_and_write(payload: Json, context: Context) -> Json:
    """Hold so many MiB in small and large blocks, then read and write files of as many others."""
    held = [torch.ones(2**18) for _ in range(payload["mib"] // 2)]
    held += [torch.ones(2**20) for _ in range(payload["mib"] // 8)]
    piece, path = b"x" * 2**20, Path(payload["file"])
    with path.open("wb") as file:
        for _ in range(payload["file_mib"]):
            file.write(piece)
        os.fsync(file.fileno())
    with path.open("rb") as file:
        while file.read(2**20):
            pass
    return {"held": len(held)}


def sleep_quietly(payload: Json, context: Context) -> Json:
    """Live for some looks, and hold nothing."""
    time.sleep(0.25)
    torch.ones(2**18)
    time.sleep(0.25)
    return {}


def peak_between_looks(payload: Json, context: Context) -> Json:
    """Hold so many MiB for much less than the time between two looks, then live on."""
    time.sleep(0.25)
    held = torch.ones(payload["mib"] * 2**18)
    del held
    time.sleep(0.25)
    return {}


def look_around(payload: Json, context: Context) -> Json:
    """What a function finds: a variable, a module of the user's, and the zygote that forked it."""
    module = importlib.import_module(payload["module"])
    return {
        "variable": os.environ.get(payload["variable"]),
        "module": module.VALUE,
        "zygote": current_zygote_pid(),
    }
