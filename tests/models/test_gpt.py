"""The small GPT: sizes, what a token may hear, shared weights."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from dayfly.models import gpt
from dayfly.models.transformers import SelfAttention
from tests.models.sizes import on_meta, parameters


def test_sizes() -> None:
    assert parameters(on_meta(gpt)) == 433_920
    # GPT-2's small one has 124,439,808.
    gpt2 = on_meta(
        lambda: gpt(vocabulary=50_257, window=1024, layers=12, width=768, heads=12, tied=True)
    )
    assert parameters(gpt2) == 124_439_808


def test_a_token_hears_nothing_of_those_after_it() -> None:
    model = gpt(vocabulary=11, window=8, width=16).double()
    tokens = torch.randint(11, (2, 8))
    changed = tokens.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 11
    scores, others = model(tokens), model(changed)
    assert scores.shape == (2, 11, 8)
    assert torch.allclose(scores[..., :5], others[..., :5], atol=1e-12)
    assert not torch.allclose(scores[..., 5], others[..., 5], atol=1e-6)


def test_causal_attention_takes_no_mask() -> None:
    attention, hidden = SelfAttention(8, 2, causal=True), torch.zeros(1, 4, 8)
    assert attention(hidden).shape == (1, 4, 8)
    with pytest.raises(ValueError, match="give it no heard_BT"):
        attention(hidden, torch.ones(1, 4, dtype=torch.bool))


def test_the_first_and_the_last_layer_share_their_matrix_if_told_to() -> None:
    own, tied = gpt(), gpt(tied=True)
    assert own[0].tokens.weight is not own[-1].scores.weight
    assert tied[0].tokens.weight is tied[-1].scores.weight
    assert parameters(own) - parameters(tied) == 97 * 128


def test_it_learns_what_comes_next() -> None:
    torch.manual_seed(0)
    model = gpt(vocabulary=7, window=16, layers=1, width=16, heads=2, tied=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(40):
        tokens = (torch.randint(7, (16, 1)) + 3 * torch.arange(17)) % 7
        loss = F.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 1.8
    assert losses[-1] < 0.5
