"""A cut is tried before anything starts: what passes, and what cannot."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from dayfly.training.replica import build_model
from dayfly.training.stages.probe import check_stages
from dayfly.training.state import model_tensors
from tests.stages.models import (
    Gpt,
    cells,
    cnn,
    images,
    job_of,
    masked,
    mlp,
    recurrent,
    rows,
    tokens,
)
from tests.stages.trying import Own, Returning, checked, refusal, returning


def leaf(*sizes: int, dtype: str = "float32", gradient: bool = True) -> dict[str, Any]:
    """The dump of a tensor whose first dimension is the samples'."""
    scales = [True, *(False for _ in sizes)]
    return {"dtype": dtype, "sizes": [1, *sizes], "scales": scales, "gradient": gradient}


@pytest.mark.parametrize(
    ("model", "cut", "samples", "forms"),
    [
        (mlp, [1, 2], rows(), [leaf(16), leaf(16)]),
        (cnn, [2, 6, 8], images(), [leaf(4, 8, 8), leaf(4, 8, 8), leaf(256)]),
        (Gpt, [1, 4], tokens(), [leaf(5, 8), leaf(5, 8)]),
        (recurrent, [1, 2], tokens(), [leaf(5, 8), leaf(5, 8)]),
        (
            cells,
            [1, 2, 3],
            rows(),
            [
                {"tuple": [leaf(8, gradient=False), leaf(8)]},
                {"tuple": [leaf(8), leaf(8)]},
                {"tuple": [leaf(8), leaf(8)]},
            ],
        ),
        (
            masked,
            [1],
            rows(),
            [
                {
                    "list": [
                        {"tuple": [leaf(8), leaf(8, dtype="bool", gradient=False)]},
                        {"dtype": "int64", "sizes": [], "scales": [], "gradient": False},
                    ]
                }
            ],
        ),
    ],
)
def test_what_passes_each_boundary(
    model: Callable[[], nn.Module], cut: list[int], samples: list[Any], forms: list[Any]
) -> None:
    assert [form.to_json() for form in checked(model, cut, samples)] == forms


def test_one_sample_is_enough() -> None:
    assert [form.to_json() for form in checked(cnn, [2], images(1))] == [leaf(4, 8, 8)]


class Folded(nn.Module):
    """Makes of each sample's rows samples."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1, 4)


class Unfolded(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1, 8)


def test_a_dimension_may_be_a_multiple_of_the_samples() -> None:
    (form,) = checked(lambda: nn.Sequential(Folded(), Unfolded(), nn.Linear(8, 4)), [1])
    assert form.to_json() == {
        "dtype": "float32",
        "sizes": [2, 4],
        "scales": [True, False],
        "gradient": False,
    }


def test_frozen_layers_send_for_no_gradient() -> None:
    def model() -> nn.Module:
        made = mlp()
        made[0].requires_grad_(False)
        return made

    assert [form.to_json() for form in checked(model, [2, 4])] == [
        leaf(16, gradient=False),
        leaf(16),
    ]


def test_a_complex_tensor_has_a_gradient() -> None:
    class Spectrum(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.fft.fft(x)

    class Power(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.abs()

    (form,) = checked(
        lambda: nn.Sequential(nn.Linear(8, 8), Spectrum(), Power(), nn.Linear(8, 4)), [2]
    )
    assert form.to_json() == leaf(8, dtype="complex64")


@pytest.mark.parametrize(
    "wrap",
    [
        torch.nn.utils.parametrizations.weight_norm,
        torch.nn.utils.parametrizations.spectral_norm,
        pytest.param(
            torch.nn.utils.weight_norm, marks=pytest.mark.filterwarnings("ignore::FutureWarning")
        ),
        torch.nn.utils.spectral_norm,
    ],
)
def test_parametrized_weights_are_cut_as_others(wrap: Any) -> None:
    (form,) = checked(lambda: nn.Sequential(wrap(nn.Linear(8, 8)), wrap(nn.Linear(8, 4))), [1])
    assert form.to_json() == leaf(8)


def test_a_parametrization_that_reads_values_is_refused() -> None:
    def model(device: str | None = None) -> nn.Module:
        linear = nn.Linear(8, 8, device=device)
        return nn.Sequential(torch.nn.utils.parametrizations.orthogonal(linear), nn.Linear(8, 4))

    assert refusal(model, [1]) == (
        "the job's model cannot be cut, as its function fails on torch's meta device, where "
        "tensors have no values: RuntimeError: Tensor.item() cannot be called on meta tensors: "
        'make tensors whose values it reads with device="cpu", and take weights by init='
    )
    assert [form.to_json() for form in checked(lambda: model("cpu"), [1])] == [leaf(8)]


def test_pruned_weights_are_cut_as_others() -> None:
    def model() -> nn.Module:
        made = mlp()
        prune.l1_unstructured(made[2], "weight", 0.5)
        return made

    assert [form.to_json() for form in checked(model, [2, 4])] == [leaf(16), leaf(16)]


def test_what_the_function_puts_on_the_cpu_by_name_works() -> None:
    def model() -> nn.Module:
        made = mlp()
        made[1].rate = torch.tensor(0.5, device="cpu")
        made[4] = nn.Linear(16, 4, device="cpu")
        return made

    assert len(checked(model, [2])) == 1


def test_checking_changes_neither_model_nor_generators() -> None:
    job = job_of(cnn)
    model = build_model(job)
    model[3].eval()
    before = {name: tensor.clone() for name, tensor in model_tensors(model).items()}
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    modes = [module.training for module in model.modules()]
    buffer = model[1].running_mean
    check_stages(job, model, [2, 5], images())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.random.get_state()[1].tolist() == states[2]
    assert [module.training for module in model.modules()] == modes
    assert model[1].running_mean is buffer
    assert all(p.grad is None for p in model.parameters())
    after = model_tensors(model)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


class Point(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


_ADVICE = "return a tensor, or a tuple or list of tensors, or cut elsewhere"


@pytest.mark.parametrize(
    ("make", "back", "kind"),
    [
        (lambda x: {"x": x}, lambda d: d["x"], "dict"),
        (lambda x: Point(x, x), lambda p: p.x, "Point"),
        (lambda x: (x, 2), lambda p: p[0] * p[1], "int"),
        (lambda x: [(x, None)], lambda p: p[0][0], "NoneType"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_layer(make: Any, back: Any, kind: str) -> None:
    assert refusal(returning(make, back), [2]) == (
        f"layer 1 of the job's model returns a {kind}, which cannot be sent to the next stage: "
        f"{_ADVICE}"
    )
    assert len(checked(returning(make, back), [1, 3])) == 2


def test_a_sparse_tensor_is_refused_by_layer() -> None:
    assert refusal(returning(lambda x: x.to_sparse(), lambda x: x.to_dense()), [2]) == (
        "layer 1 of the job's model returns a tensor of layout sparse_coo, which cannot be sent to "
        "the next stage: return a dense one, or cut elsewhere"
    )


@pytest.mark.parametrize(
    ("make", "back", "shapes"),
    [
        (
            lambda x: torch.cat([x, x[:1]]),
            lambda x: x[:-1],
            "[7, 8] float32 of 6 samples and [6, 8] float32 of 5",
        ),
        (
            lambda x: x.reshape(-1).repeat(x.shape[0]),
            lambda x: x[: int((x.numel() // 8) ** 0.5) * 8].reshape(-1, 8),
            "[288] float32 of 6 samples and [200] float32 of 5",
        ),
    ],
)
def test_a_shape_that_does_not_follow_from_the_samples_is_refused(
    make: Any, back: Any, shapes: str
) -> None:
    assert refusal(returning(make, back), [2]) == (
        f"layer 1 of the job's model returns {shapes}: what passes between stages has to have "
        "dimensions that are fixed, or a multiple of the samples: pad it, or cut elsewhere"
    )


def test_another_structure_for_other_samples_is_refused() -> None:
    model = returning(lambda x: tuple(x), lambda x: torch.stack(x))
    assert refusal(model, [2]) == (
        "layer 1 of the job's model returns a tuple of 6 of 6 samples and a tuple of 5 of 5: "
        "return the same form always, or cut elsewhere"
    )


class Changing(nn.Module):
    """Returns another form in training mode."""

    def forward(self, x: torch.Tensor) -> Any:
        return (x, x) if self.training else x


def test_another_form_in_training_mode_is_refused() -> None:
    def model() -> nn.Module:
        back = Returning(lambda x: x[0] if isinstance(x, tuple) else x)
        return nn.Sequential(nn.Linear(8, 8), Changing(), back, nn.Linear(8, 4))

    assert refusal(model, [2]) == (
        "layer 1 of the job's model returns another form in training mode than in evaluation: a "
        "layer returned tuple where it returned a tensor when it was tried: let it return the same "
        "form always"
    )


def test_another_forward_is_refused() -> None:
    assert refusal(lambda: Own(lambda m, x: m.two(m.one(x).relu())), [1]) == (
        "the job's model cannot be cut, as its layers applied one after another give another "
        "result than its forward: let forward do nothing else, and layers() return all of them in "
        "their order"
    )
    assert len(checked(lambda: Own(lambda m, x: m.two(m.one(x))), [1])) == 1


def test_another_forward_in_training_mode_is_refused() -> None:
    model = lambda: Own(lambda m, x: m.two(m.one(x)) * (2 if m.training else 1))  # noqa: E731
    assert refusal(model, [1]) == (
        "the job's model cannot be cut, as its layers applied one after another give another "
        "result in training mode than its forward: let forward do the same in both modes, but for "
        "what its layers do"
    )


def test_a_layer_that_takes_two_arguments_is_refused() -> None:
    def model() -> nn.Module:
        made = Own(lambda m, x: m.two(x, x))
        made.one = Returning(lambda x: x)
        made.two = nn.Bilinear(8, 8, 4)
        return made

    assert refusal(model, [1]) == (
        "the job's model cannot be cut, as its layer 1 does not take what layer 0 returns: "
        "TypeError: Bilinear.forward() missing 1 required positional argument: 'input2': let each "
        "layer take what the one before it returns, as its one argument"
    )
