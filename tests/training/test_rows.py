"""Outputs and targets of all samples, in order, whatever worker wrote or sent them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch

from dayfly.errors import RequestError
from dayfly.training.rows import Rows

SAMPLES = 7


def nested(samples: range) -> tuple[Any, Any]:
    x = torch.arange(samples.start, samples.stop)
    outputs = OrderedDict(
        scores=(x[:, None] * torch.ones(3)).half().requires_grad_(),
        more=[x.double(), (x > 3, None, "eval" and 2)],
    )
    return outputs, {"y": x, "mask": x.to(torch.uint8)}


def test_blocks_of_several_workers_become_one_tree() -> None:
    root, other = Rows(range(SAMPLES)), Rows(range(4, SAMPLES))
    root.write(range(2, 4), *nested(range(2, 4)))
    root.write(range(2), *nested(range(2)))
    other.write(range(4, 6), *nested(range(4, 6)))
    other.write(range(6, 7), *nested(range(6, 7)))
    part = range(4, SAMPLES)
    for own, into in zip(other.bytes_of(part), root.bytes_of(part), strict=True):
        into.copy_(own)
    outputs, targets = root.tree()
    x = torch.arange(SAMPLES)
    assert isinstance(outputs, OrderedDict)
    assert outputs["scores"].dtype is torch.float32
    assert not outputs["scores"].requires_grad
    assert torch.equal(outputs["scores"], x[:, None] * torch.ones(3))
    assert torch.equal(outputs["more"][0], x.float())
    assert torch.equal(outputs["more"][1][0], x > 3)
    assert outputs["more"][1][1:] == (None, 2)
    assert torch.equal(targets["y"], x)
    assert targets["mask"].dtype is torch.uint8
    assert root.sample_bytes == 3 * 4 + 4 + 1 + 8 + 1


def test_another_attempt_goes_on_with_the_form() -> None:
    first, second = Rows(range(SAMPLES)), Rows(range(SAMPLES))
    first.write(range(SAMPLES), *nested(range(SAMPLES)))
    second.take_form(first.form())
    whole = range(SAMPLES)
    for own, into in zip(first.bytes_of(whole), second.bytes_of(whole), strict=True):
        into.copy_(own)
    second.write(range(2), *nested(range(2)))
    outputs, targets = second.tree()
    assert isinstance(outputs, OrderedDict)
    assert torch.equal(outputs["scores"], first.tree()[0]["scores"])
    assert torch.equal(targets["y"], torch.arange(SAMPLES))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"float32"', '"float64"', "dtype 'float64' is none of float32, "),
        ('"float32"', '"nn"', "dtype 'nn' is none of"),
        ('"row": [3]', '"row": [-3]', r"leaves\[0\].row\[0\] is -3, not a whole number from 0"),
        ('"leaves": [', '"leaves": [7, ', r"leaves\[0\] is 7"),
        ('"tree": "', '"tree": "x', "tree is none of torch's"),
        ("{", "[", "is no JSON"),
    ],
)
def test_a_form_that_is_none_is_refused(old: str, new: str, said: str) -> None:
    rows = Rows(range(SAMPLES))
    rows.write(range(SAMPLES), *nested(range(SAMPLES)))
    form = rows.form().decode()
    assert old in form
    with pytest.raises(RequestError, match=said):
        Rows(range(SAMPLES)).take_form(form.replace(old, new, 1).encode())


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        (torch.tensor(1.0), r"of 2 samples .* a tensor of shape \[\], so metrics cannot"),
        (torch.ones(3), r"a tensor of shape \[3\]"),
        ({"name": "cat"}, "have a str, so metrics cannot be computed of all samples: let the"),
    ],
)
def test_what_has_no_row_for_each_sample_is_refused(outputs: Any, text: str) -> None:
    with pytest.raises(RequestError, match=text):
        Rows(range(4)).write(range(2), outputs, None)


@pytest.mark.parametrize("later", [torch.ones(2, 4), torch.ones(2, 3).int(), [torch.ones(2, 3)], 1])
def test_blocks_of_different_forms_are_refused(later: Any) -> None:
    rows = Rows(range(4))
    rows.write(range(2), torch.ones(2, 3), None)
    with pytest.raises(RequestError, match=r"samples 2 to 3 have another form .* pad them"):
        rows.write(range(2, 4), later, None)
