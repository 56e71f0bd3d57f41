"""The weights that a job starts from, where it gives some: read and checked."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import safetensors
import safetensors.torch

from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.training.replica import Replica
from dayfly.training.state import Tensors, bad_tensor, model_tensors, trained_names


def initial_weights(job: Job, replica: Replica) -> Tensors:
    """Returns the weights that a job with `init` starts from, under the model's own names.

    Args:
        job: with `init`.
        replica: of the job; its model takes the weights.

    Raises:
        RequestError: they cannot be read, are another model's, or are not finite.
    """
    init = job.init
    if isinstance(init, (str, Path)) or hasattr(init, "__fspath__"):
        path = Path(cast("str", init)).expanduser()
        try:
            given = safetensors.torch.load_file(path)
        except (OSError, safetensors.SafetensorError) as error:
            raise RequestError(f"init {str(path)!r} cannot be read: {error}") from error
    else:
        given = dict(cast("Tensors", init))
    own = model_tensors(replica.model)
    try:
        unexpected = replica.model.load_state_dict(given, strict=False).unexpected_keys
    except RuntimeError as error:
        text = " ".join(str(error).split())
        raise RequestError(f"the weights of init are another model's: {text}") from error
    missing = own.keys() - given.keys() - _not_saved(replica, given)
    if unexpected or missing:
        differing = ", ".join(sorted([*unexpected, *missing])[:3])
        raise RequestError(f"the weights of init are another model's: {differing} differ")
    named = dict(replica.model.named_parameters())
    if (bad := bad_tensor(own, trained_names(named))) is not None:
        raise RequestError(
            f"the weights of init hold NaN or infinity in {bad}: give those of a training that "
            "stayed finite"
        )
    return own


def _not_saved(replica: Replica, given: Tensors) -> set[str]:
    """Names that weights need not have: buffers that are not saved, other names of shared ones."""
    saved = replica.model.state_dict(keep_vars=True)
    known = {id(saved[name]) for name in given if name in saved}
    own = dict((*replica.model.named_parameters(), *replica.model.named_buffers()))
    return {name for name, tensor in own.items() if name not in saved or id(tensor) in known}
