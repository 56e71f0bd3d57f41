"""What passes between two stages becomes bytes and is itself again."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils._pytree import tree_leaves, tree_structure

from dayfly.errors import DayflyError
from dayfly.training.stages.forms import BoundaryForm, Branch, Node, TensorForm

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64)
OTHERS = (torch.bool, torch.uint8, torch.int32, torch.int64)


def row(dtype: torch.dtype, width: int, *, gradient: bool = False) -> TensorForm:
    """(samples, width)."""
    return TensorForm(dtype, (1, width), (True, False), gradient)


PAIR = BoundaryForm(
    Branch(tuple, (row(torch.float32, 5, gradient=True), TensorForm(torch.int64, (), (), False)))
)


@st.composite
def tensor_forms(draw: st.DrawFn) -> TensorForm:
    dims = draw(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=3))
    dtype = draw(st.sampled_from(FLOATS + OTHERS))
    gradient = dtype in FLOATS and draw(st.booleans())
    sizes, scales = tuple(size for size, _ in dims), tuple(scales for _, scales in dims)
    return TensorForm(dtype, sizes, scales, gradient)


NODES = st.recursive(
    tensor_forms(),
    lambda inner: st.builds(
        Branch, st.sampled_from([tuple, list]), st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=6,
)
FORMS = st.builds(BoundaryForm, NODES)


def some(form: TensorForm, samples: int) -> torch.Tensor:
    """Any values of a form."""
    shape = form.shape(samples)
    if form.dtype in FLOATS:
        return torch.randn(shape, dtype=torch.float64).to(form.dtype)
    return torch.randint(0, 2, shape).to(form.dtype)


def values_of(node: Node, samples: int) -> Any:
    if isinstance(node, TensorForm):
        return some(node, samples)
    return node.kind(values_of(item, samples) for item in node.items)


@given(FORMS, st.integers(1, 5))
def test_values_are_themselves_again(form: BoundaryForm, samples: int) -> None:
    values = values_of(form.root, samples)
    message = form.pack(values)
    assert message.dtype is torch.uint8
    assert len(message) == form.nbytes(samples)
    again = form.unpack(message.clone(), samples)
    assert tree_structure(again) == tree_structure(values)
    for one, two in zip(tree_leaves(values), tree_leaves(again), strict=True):
        assert one.dtype is two.dtype
        assert torch.equal(one, two)


@given(FORMS, st.integers(1, 5), st.data())
def test_gradients_are_themselves_again(
    form: BoundaryForm, samples: int, data: st.DataObject
) -> None:
    graded = [one for one in form.tensors if one.gradient]
    gradients = [some(one, samples) if data.draw(st.booleans()) else None for one in graded]
    message = form.pack_gradients(gradients, samples)
    assert len(message) == form.gradient_nbytes(samples)
    for one, given_, again in zip(
        graded, gradients, form.unpack_gradients(message, samples), strict=True
    ):
        wanted = torch.zeros(one.shape(samples), dtype=one.dtype) if given_ is None else given_
        assert again.dtype is one.dtype
        assert torch.equal(again, wanted)


@given(FORMS)
def test_a_form_is_json(form: BoundaryForm) -> None:
    assert BoundaryForm.from_json(json.loads(json.dumps(form.to_json()))) == form


def test_a_message_drawn() -> None:
    values = (torch.tensor([[1.0, 2, 3, 4, 5]]), torch.tensor(7))
    message = PAIR.pack(values)
    assert PAIR.nbytes(1) == 40
    assert message[:20].view(torch.float32).tolist() == [1, 2, 3, 4, 5]
    assert message[20:32].tolist() == [0] * 12
    assert message[32:].view(torch.int64).tolist() == [7]
    assert PAIR.nbytes(3) == 64 + 8
    assert PAIR.gradient_nbytes(3) == 60


def test_json_drawn() -> None:
    assert PAIR.to_json() == {
        "tuple": [
            {"dtype": "float32", "sizes": [1, 5], "scales": [True, False], "gradient": True},
            {"dtype": "int64", "sizes": [], "scales": [], "gradient": False},
        ]
    }


@pytest.mark.parametrize("name", ["nn", "load", "float99"])
def test_what_is_no_dtype_is_not_loaded(name: str) -> None:
    tree = {"dtype": name, "sizes": [], "scales": [], "gradient": False}
    with pytest.raises(ValueError, match=f"'{name}'.* is no form of what passes"):
        BoundaryForm.from_json(tree)


def test_one_whole_tensor_is_not_copied() -> None:
    form = BoundaryForm(row(torch.float32, 5, gradient=True))
    x = torch.randn(3, 5, requires_grad=True)
    message = form.pack(x)
    assert message.data_ptr() == x.data_ptr()
    assert form.unpack(message, 3).data_ptr() == x.data_ptr()
    assert form.pack_gradients([x.detach()], 3).data_ptr() == x.data_ptr()
    assert form.unpack_gradients(message, 3)[0].data_ptr() == x.data_ptr()


def test_a_transposed_tensor_arrives_as_it_was() -> None:
    form = BoundaryForm(row(torch.float32, 5))
    x = torch.randn(5, 3).T
    assert torch.equal(form.unpack(form.pack(x), 3), x)


def test_a_conjugate_arrives_as_it_was() -> None:
    form = BoundaryForm(row(torch.complex64, 5))
    x = torch.randn(3, 5, dtype=torch.complex64).conj()
    assert torch.equal(form.unpack(form.pack(x), 3), x)


def test_views_of_a_message_are_not_copied() -> None:
    message = PAIR.pack((torch.zeros(1, 5), torch.tensor(7)))
    x, _ = PAIR.unpack(message, 1)
    x.fill_(1)
    assert message[:20].view(torch.float32).tolist() == [1] * 5


def test_a_sparse_gradient_is_made_dense() -> None:
    form = BoundaryForm(row(torch.float32, 5, gradient=True))
    gradient = torch.eye(3, 5)
    message = form.pack_gradients([gradient.to_sparse()], 3)
    assert torch.equal(form.unpack_gradients(message, 3)[0], gradient)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            (torch.zeros(3, 5),),
            "a layer returned tuple where it returned a tuple of 2 when it was tried: let it "
            "return the same form always",
        ),
        (
            (None, torch.tensor(7)),
            "a layer returned NoneType where it returned a tensor when it was tried: let it return "
            "the same form always",
        ),
        (
            (torch.zeros(3, 6), torch.tensor(7)),
            "tensor 0 between two stages is [3, 6] torch.float32, not [3, 5] torch.float32 as when "
            "it was tried: let layers give shapes that depend on the number of samples alone",
        ),
        (
            (torch.zeros(3, 5), torch.tensor(7.0)),
            "tensor 1 between two stages is [] torch.float32, not [] torch.int64 as when it was "
            "tried: let layers give shapes that depend on the number of samples alone",
        ),
    ],
)
def test_another_form_is_not_sent(values: Any, message: str) -> None:
    with pytest.raises(DayflyError) as caught:
        PAIR.pack(values)
    assert str(caught.value) == message


def test_tensors_of_different_samples_are_not_sent() -> None:
    form = BoundaryForm(Branch(list, (row(torch.float32, 2), row(torch.float32, 2))))
    with pytest.raises(DayflyError, match=r"tensor 1 between two stages is \[4, 2\]"):
        form.pack([torch.zeros(3, 2), torch.zeros(4, 2)])


def test_a_message_of_another_size_is_not_read() -> None:
    with pytest.raises(DayflyError, match="has 88 bytes, not the 72 of 3 samples"):
        PAIR.unpack(torch.zeros(88, dtype=torch.uint8), 3)


def test_received_values_enter_a_graph() -> None:
    values = (torch.tensor([[-1.0, 2, -3, 4, 5]]), torch.tensor(7))
    leaves, (x, count) = PAIR.enter(values)
    assert [leaf.requires_grad for leaf in leaves] == [True]
    assert x.data_ptr() == leaves[0].data_ptr() == values[0].data_ptr()
    (x.square().sum() * count).backward()
    assert torch.equal(leaves[0].grad, 14 * values[0])


@pytest.mark.parametrize(
    "write", [nn.ReLU(inplace=True), lambda x: x.relu_(), lambda x: x[:, 1:].mul_(2)]
)
def test_a_first_layer_may_write_into_what_it_gets(write: Any) -> None:
    start = torch.tensor([[-1.0, 2, -3, 4, 5]])
    (leaf,), (x, _) = PAIR.enter((start.clone(), torch.tensor(7)))
    write(x)
    x.square().sum().backward()
    expected = start.clone().requires_grad_()
    copy = expected.clone()
    write(copy)
    copy.square().sum().backward()
    assert torch.equal(leaf.grad, expected.grad)


def test_what_is_saved_and_then_written_is_still_noticed() -> None:
    (_,), (x, _) = PAIR.enter((torch.randn(3, 5), torch.tensor(7)))
    y = x.square().sum()
    x.relu_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (y + x.sum()).backward()


def test_what_needs_no_gradient_is_no_leaf() -> None:
    form = BoundaryForm(row(torch.float32, 5))
    leaves, x = form.enter(torch.randn(3, 5))
    assert leaves == []
    assert not x.requires_grad
    assert form.gradient_nbytes(3) == 0
    assert form.unpack_gradients(form.pack_gradients([], 3), 3) == []


def test_backward_begins_from_what_a_gradient_comes_back_to() -> None:
    values = (torch.randn(3, 5), torch.tensor(7))
    assert [one is values[0] for one in PAIR.graded(values)] == [True]
