"""`run.export`: a trained model as a file for other programs, by the file's ending.

.safetensors    the weights, by the names of the model's state_dict
.pt, .pth       the state_dict, by torch.save
.onnx           weights and computation, for any number of samples (torch.onnx)
.ts             weights and computation as TorchScript, which torch calls deprecated
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import default_collate

from dayfly.errors import DayflyError, RequestError, in_short
from dayfly.job import Job
from dayfly.runs.prepare import Data
from dayfly.runs.whole_files import replacing
from dayfly.training.randomness import DATA, seeded

#: A batch of so many samples is traced: torch takes a size of 1 for a constant.
_TRACED = 2
#: What a file of ONNX holds, at most; it is one message of protobuf.
_LARGEST_ONNX_BYTES = 2**31 - 2**24


def export(job: Job, model: nn.Module, file: str | Path, sample: Any = None) -> Path:
    """Writes a model into a file, whole or not at all.

    Args:
        job: of the model, whose validation data gives a sample.
        model: with its weights, in evaluation mode, on the CPU.
        file: its ending says the form; see above.
        sample: arguments of the model for a batch, a tensor or a tuple of such; None: x of the
            job's data. Needed for `.onnx` and `.ts` only.

    Returns:
        The file's path.

    Raises:
        RequestError: another ending, no sample, a package that is missing, or a model that cannot
            be written so.
    """
    path = Path(file).expanduser()
    write = _FORMS.get(path.suffix)
    if write is None:
        raise RequestError(f"{str(file)!r}: give a file that ends with {', '.join(_FORMS)}")
    if not path.parent.is_dir():
        raise RequestError(f"{str(path)!r}: there is no directory {str(path.parent)!r}: make it")

    def given() -> tuple[Any, ...]:
        return _arguments(job, sample)

    try:
        with replacing(path) as beside:
            write(model, beside, given)
    except DayflyError:
        raise
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror or error}") from error
    except Exception as error:  # torch raises many things of a model that it cannot trace
        raise RequestError(
            f"the model cannot be written as {path.suffix}: {in_short(error)}"
        ) from error
    return path


_Given = Callable[[], tuple[Any, ...]]


def _safetensors(model: nn.Module, file: Path, given: _Given) -> None:
    safetensors.torch.save_model(model, str(file))


def _state_dict(model: nn.Module, file: Path, given: _Given) -> None:
    torch.save(model.state_dict(), file)


def _onnx(model: nn.Module, file: Path, given: _Given) -> None:
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise RequestError(
            f"to write .onnx, {' and '.join(missing)} is needed: pip install 'dayfly[export]'"
        )
    nbytes = sum(tensor.nbytes for tensor in model.state_dict().values())
    if nbytes > _LARGEST_ONNX_BYTES:
        raise RequestError(
            f"the weights take {nbytes / 2**30:.1f} GiB, and a file of ONNX holds 2 GiB at most: "
            "write .safetensors"
        )
    arguments = given()
    batch = torch.export.Dim("batch")
    shapes = tree_map(
        lambda leaf: {0: batch} if isinstance(leaf, torch.Tensor) else None, arguments
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own code
        torch.onnx.export(
            model,
            arguments,
            str(file),
            dynamo=True,
            dynamic_shapes=shapes,
            external_data=False,
            verbose=False,
        )


def _script(model: nn.Module, file: Path, given: _Given) -> None:
    if not hasattr(torch.jit, "trace"):
        raise RequestError("this torch has no TorchScript any more: write .onnx")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.filterwarnings("ignore", message=".*is deprecated", category=DeprecationWarning)
        # What depends on the data, and would be traced wrongly, is told by a warning.
        warnings.simplefilter("error", torch.jit.TracerWarning)
        traced = torch.jit.trace(model, given())
        torch.jit.save(traced, str(file))


_FORMS: Mapping[str, Callable[[nn.Module, Path, _Given], None]] = {
    ".safetensors": _safetensors,
    ".pt": _state_dict,
    ".pth": _state_dict,
    ".onnx": _onnx,
    ".ts": _script,
}


def _arguments(job: Job, sample: Any) -> tuple[Any, ...]:
    """The model's arguments for a small batch."""
    if sample is not None:
        arguments = sample if isinstance(sample, tuple) else (sample,)
        if any(isinstance(one, torch.Tensor) and not one.ndim for one in tree_leaves(arguments)):
            raise RequestError("sample= has a tensor without dimensions: give a batch of samples")
        return arguments
    if job.step is not None:
        raise RequestError(
            "the job has a step of its own, so nobody knows what its model takes: give "
            "sample=..., the model's arguments for a batch of two samples"
        )
    with seeded(DATA, job.seed):
        unseen = Data.of(job).unseen
    x, _ = default_collate((unseen * _TRACED)[:_TRACED])
    return (x,)
