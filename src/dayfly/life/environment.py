"""The environment that a function's process begins with, as libraries read it when they load."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from dayfly.life import allocator
from dayfly.life.processor import Processor

#: Of a function: they are many, and sums depend in their last bits on the number.
THREADS = 1
_THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
#: Lets `torch.cuda.is_available` ask NVML. Otherwise it initialises CUDA, and if anything that the
#: zygote imports asks, no function can use CUDA any more: it does not survive a fork.
_BY_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"


def library_settings(
    environment: Mapping[str, str], variables: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Returns the variables that set libraries up in functions: threads, instructions, allocator.

    Args:
        environment: of the process that starts them; its tunables of the C library count.
        variables: which instruction sets libraries may use; None: as of a run that begins here.

    Raises:
        RequestError: the environment asks for instructions that this CPU lacks.
    """
    if variables is None:
        variables = Processor.here().variables(environment)
    threads = dict.fromkeys(_THREADS, str(THREADS))
    return {**threads, **variables, **allocator.keeping(environment), _BY_NVML: "1"}


@contextmanager
def setting(values: Mapping[str, str]) -> Iterator[None]:
    """Environment variables of this process, for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
