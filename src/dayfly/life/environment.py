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
#: Beginnings of names of variables that are read while an interpreter starts and libraries load.
AT_LOAD = (
    "ATEN_",
    "GLIBC_",
    "GOMP_",
    "KMP_",
    "LANG",
    "LC_",
    "LD_",
    "MALLOC_",
    "MKL_",
    "NUMBA_",
    "NUMEXPR_",
    "OMP_",
    "ONEDNN_",
    "OPENBLAS_",
    "PYTHON",
    "PYTORCH_",
    "TORCH_",
    "VECLIB_",
)
#: But these have their effect on who is forked, too, or none on what a zygote loads: scikit-learn
#: sets the last two for libraries of its own.
_NOT_AT_LOAD = (
    "PYTHONPATH",
    "PYTHONDONTWRITEBYTECODE",
    "KMP_DUPLICATE_LIB_OK",
    "KMP_INIT_AT_FORK",
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


def read_at_load(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that have an effect only on a process that is started with them."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(AT_LOAD) and name not in _NOT_AT_LOAD
    }


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
