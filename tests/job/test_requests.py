"""A job that cannot be meant is refused where it is made, in one sentence that says what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dayfly.batches import validates, validations
from dayfly.errors import RequestError
from dayfly.job import Job
from tests.job.asked import given, refusal

NUMBERS = ("batch_size", "epochs", "accumulate")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"model": None},
            "the job has no model: give model=..., a function that builds the module",
        ),
        (
            {"model": nn.Linear(2, 2)},
            "the job's model is a module: give a function that builds it (model=lambda: ...), as "
            "every worker builds its own",
        ),
        (
            {"model": "resnet"},
            "the job's model is str: it must be a function that builds the module",
        ),
        ({"loss": None}, "the job has no loss: give loss=..., or step=... of your own"),
        (
            {"step": lambda model, batch: None},
            "the job has both loss= and step=: give one of them",
        ),
        (
            {"loss": "mse"},
            "the job's loss is str: it must be a function loss(outputs, targets)",
        ),
        (
            {"optimizer": None},
            "the job has no optimizer: give optimizer=..., a function of the parameters",
        ),
        (
            {"optimizer": torch.optim.SGD([torch.ones(1)], lr=0.1)},
            "the job's optimizer is an optimizer already: give a function of the parameters "
            "(optimizer=lambda params: torch.optim.SGD(params, lr=0.1))",
        ),
        ({"optimizer": "adam"}, "the job's optimizer is str: it must be a function of the"),
        ({"scheduler": 0.1}, "the job's scheduler is float: it must be a function of the"),
        ({"transform": "flip"}, "the job's transform is str: it must be a function of one sample"),
        ({"eval_transform": 1}, "the job's eval_transform is int: it must be a function of one"),
        (
            {"data": None},
            'the job has no data: give data="digits", a file or directory of data, or a '
            "function that returns (train, validation) Datasets",
        ),
        (
            {"data": np.ones(3)},
            'the job\'s data is ndarray: give "digits", a file or directory of data, or a '
            "function that returns (train, validation) Datasets",
        ),
        *(
            ({name: bad}, f"the job's {name} is {bad!r}: give a whole number from 1")
            for name in NUMBERS
            for bad in (0, -1, 1.5, "8", None, True)
        ),
        ({"validate_every": -1}, "the job's validate_every is -1: give a whole number from 0"),
        ({"seed": -1}, "the job's seed is -1: give a whole number from 0"),
        ({"seed": 0.5}, "the job's seed is 0.5: give a whole number from 0"),
        *(
            ({"clip_norm": bad}, f"the job's clip_norm is {bad!r}: give a number above 0")
            for bad in (0, -1.0, float("inf"), float("nan"), "1")
        ),
        (
            {"scheduler_every": "batch"},
            'the job\'s scheduler_every is \'batch\': give "epoch" or "step"',
        ),
        (
            {"scheduler_every": "step"},
            "the job's scheduler_every is 'step', and it has no scheduler: give scheduler=, too",
        ),
        (
            {"transform": torch.relu},
            "the job's transform is for arrays, and its data is a function: let its Datasets",
        ),
        (
            {"init": nn.Linear(2, 2)},
            "the job's init is Linear: give a .safetensors file, or a state dict such as "
            "module.state_dict()",
        ),
        (
            {"metrics": [len]},
            "the job's metrics are list: give a dict of names and metrics: torchmetrics objects "
            "or functions",
        ),
        (
            {"metrics": {"f1": "macro"}},
            "the job's metric 'f1' is str: it must be a function metric(outputs, targets)",
        ),
        (
            {"metrics": {"val_loss": len}},
            "the job's metric 'val_loss' has the name of what is measured anyway, or none: give "
            "it a name of its own",
        ),
    ],
)
def test_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(RequestError) as refused:
        Job(**given(**changes))
    assert str(refused.value).startswith(text)
    assert "\n" not in str(refused.value)


def test_a_batch_smaller_than_the_workers_is_refused() -> None:
    assert refusal(workers=9) == (
        "a batch of 8 cannot be shared by 9 workers: raise batch_size, or lower --workers"
    )


def test_a_job_cannot_be_changed_afterwards() -> None:
    with pytest.raises(AttributeError):
        Job(**given()).seed = 1  # type: ignore[misc]


def test_epochs_are_validated_every_so_often_and_at_the_end_or_never() -> None:
    found = {
        every: [epoch for epoch in range(5) if validates(epoch, 5, every)] for every in range(4)
    }
    assert found == {0: [], 1: [0, 1, 2, 3, 4], 2: [1, 3, 4], 3: [2, 4]}
    assert [validations(5, every) for every in range(4)] == [len(of) for of in found.values()]
