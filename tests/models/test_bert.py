"""BERT: its sizes against the papers' tables, padding, parts of a text, dropout."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from dayfly.models import bert, bert_base, bert_large
from dayfly.models.transformers import Embeddings
from tests.models.sizes import mib, on_meta, parameters


def small(task: str = "classes", dropout: float = 0.1) -> nn.Sequential:
    """Two layers of width 16, for texts of up to 12 tokens."""
    return bert(  # type: ignore[arg-type]  # a task that is no task is tested, too
        task, layers=2, width=16, heads=4, vocabulary=200, positions=12, classes=3, dropout=dropout
    )


TEXTS = torch.tensor([[101, 7, 8, 102, 9, 102], [101, 5, 102, 0, 0, 0]])


@pytest.mark.parametrize(
    ("build", "task", "expected"),
    [
        (bert_base, "classes", 109_483_778),
        (bert_base, "answers", 108_893_186),  # Hydrozoa, table 2: 108.9M
        (bert_base, "words", 109_514_298),  # as of BertForMaskedLM of Hugging Face
        (bert_large, "classes", 335_143_938),
        (bert_large, "answers", 334_094_338),
    ],
)
def test_numbers_of_parameters(
    build: Callable[[str], nn.Sequential], task: str, expected: int
) -> None:
    assert parameters(on_meta(lambda: build(task))) == expected


def test_sizes_of_the_tables_in_mib() -> None:
    base, large = on_meta(bert_base), on_meta(bert_large)
    # FasDL's table II has 417.17: the matrices alone.
    assert round(parameters(base) / 2**18, 2) == 417.65
    matrices = [
        weight.numel()
        for name, weight in base.named_parameters()
        if weight.ndim == 2 and "parts" not in name and "scores" not in name
    ]
    assert round(sum(matrices) / 2**18, 2) == 417.17
    # FuncPipe's table 1 has 1153: the encoder alone.
    assert (mib(parameters(large)), mib(parameters(large[1:-1]))) == (1278.5, 1153.2)


def test_shapes_of_the_large_ones() -> None:
    tokens = torch.ones(2, 384, dtype=torch.int64, device="meta")
    assert on_meta(bert_base)(tokens).shape == (2, 2)
    assert on_meta(lambda: bert_base("answers"))(tokens).shape == (2, 384, 2)
    model = on_meta(bert_large)
    assert len(model) == 26
    hidden, heard = model[:3](tokens)
    assert (hidden.shape, heard.shape, heard.dtype) == ((2, 384, 1024), (2, 384), torch.bool)


@pytest.mark.parametrize("task", ["classes", "answers"])
def test_every_parameter_learns(task: str) -> None:
    model = small(task)
    model(TEXTS).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_padding_is_not_heard() -> None:
    model = small().double().eval()
    longer = torch.cat([TEXTS, torch.zeros(2, 5, dtype=torch.int64)], dim=1)
    assert torch.allclose(model(longer), model(TEXTS), rtol=0, atol=1e-12)
    assert not torch.allclose(model(TEXTS.flip(0)), model(TEXTS), rtol=0, atol=1e-9)


def test_what_follows_the_first_end_is_the_second_part() -> None:
    embeddings = Embeddings(200, 12, 1, dropout=0.0)
    embeddings.norm = nn.Identity()  # type: ignore[assignment]
    with torch.no_grad():
        embeddings.words.weight.zero_()
        embeddings.places.weight.zero_()
        embeddings.parts.weight.copy_(torch.tensor([[0.0], [1.0]]))
    hidden, heard = embeddings(TEXTS)
    assert hidden[..., 0].tolist() == [[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]]
    assert heard.tolist() == [[True] * 6, [True] * 3 + [False] * 3]


def test_dropout_follows_the_generator_and_ends_with_training() -> None:
    model = small()
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append(model(TEXTS))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
    model.eval()
    assert torch.equal(model(TEXTS), model(TEXTS))


def test_what_cannot_be_built_is_refused() -> None:
    with pytest.raises(ValueError, match="BERT for 'poems': give one of classes, answers, words"):
        small("poems")
    with pytest.raises(ValueError, match="3 heads share a width of 16"):
        bert(layers=1, width=16, heads=3)
