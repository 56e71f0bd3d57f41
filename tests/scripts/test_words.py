"""Errors that speak of jobs and flags of `dayfly train` speak of the script's own arguments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import dayfly
from dayfly.errors import RequestError
from dayfly.runs.scripts.words import in_words_of_a_script

SAID = {
    "the job's loss is a sum over its samples: make it": (
        "the script's loss is a sum over its samples: make it"
    ),
    "the job has metrics, and its step returns no outputs": (
        "dayfly.parallel has metrics, and its step returns no outputs"
    ),
    "the job fails on one batch: its metric 'f1' fails: KeyError": (
        "the script fails on one batch: its metric 'f1' fails: KeyError"
    ),
    "make it their mean, or give the job a step that returns a mapping": (
        "make it their mean, or give dayfly.parallel a step= that returns a mapping"
    ),
    "--cut 2,4 parts layers that share weights: 1, 3: give --cut 1,4, or each its own": (
        "cut=(2,4,) parts layers that share weights: 1, 3: give cut=(1,4,), or each its own"
    ),
    "--cut 9: the model has 3 layers": "cut=(9,): the model has 3 layers",
    "compute by --precision bf16": 'compute by precision="bf16"',
    "the message log may take 4 MiB: raise --log-budget, or use fewer workers": (
        "the message log may take 4 MiB: raise --log-budget, or use fewer workers"
    ),
    "layer 3 of the job's model returns a str": "layer 3 of the script's model returns a str",
    "the job's model's layers() fails": "the model's layers() fails",
}


@pytest.mark.parametrize("text", SAID)
def test_a_refusal_in_words_of_a_script(text: str) -> None:
    assert in_words_of_a_script(text) == SAID[text]


def test_no_refusal_of_what_loops_use_speaks_of_a_job_then() -> None:
    root = Path(dayfly.__file__).parent / "training"
    texts = [
        text
        for file in sorted(root.rglob("*.py"))
        for text in re.findall(r'(?<!")"(?!")([^"\n]*\bjob\b[^"\n]*)"(?!")', file.read_text())
    ]
    assert len(texts) > 40
    said = [in_words_of_a_script(re.sub("{[^}]*}", "", text)) for text in texts]
    assert [one for one in said if re.search(r"\bjob\b", one)] == []


def test_a_call_is_refused_in_them() -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(RequestError, match=r"^dayfly.parallel has no loss: give loss="):
        dayfly.parallel(model, optimizer=optimizer)
    wrapped = dayfly.parallel(model, optimizer=optimizer, loss=lambda outputs, y: outputs.sum())
    with pytest.raises(RequestError, match=r"^the script's loss is a sum over its samples"):
        wrapped.step(torch.ones(4, 2), torch.ones(4))
