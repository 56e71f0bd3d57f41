"""A small GPT: each token is to be told from those before it.

Radford and others, "Language Models are Unsupervised Multitask Learners" (2019): norms before
attention and perceptron, and one more at the end.
Shapes: B samples, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import nn

from dayfly.models.attention import SelfAttention, start_small


class TokensAndPlaces(nn.Module):
    """tokens_BT (B, T) int64 -> x_BTD (B, T, D)."""

    def __init__(self, vocabulary: int, window: int, width: int, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(window, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        """What stands at each place, and the place."""
        places_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        x_BTD: torch.Tensor = self.dropout(self.tokens(tokens_BT) + self.places(places_T))
        return x_BTD


class DecoderBlock(nn.Module):
    """x_BTD (B, T, D) -> (B, T, D); 12 D^2 + 13 D parameters."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads, dropout=dropout, causal=True)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Attention to what came before, then a perceptron; each adds to what it was given."""
        x_BTD = x_BTD + self.dropout(self.attention(self.norm_1(x_BTD)))
        inner = nn.functional.gelu(self.up(self.norm_2(x_BTD)))
        added: torch.Tensor = x_BTD + self.dropout(self.down(inner))
        return added


class NextToken(nn.Module):
    """x_BTD (B, T, D) -> scores (B, V, T) of the token after each, as `cross_entropy` takes them.

    weight: (V, D) of the embedding, to be shared; None: its own.
    """

    def __init__(self, width: int, vocabulary: int, weight: torch.Tensor | None) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, vocabulary, bias=False)
        if weight is not None:
            self.scores.weight = weight

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Scores of the next token."""
        scores_BTV: torch.Tensor = self.scores(self.norm(x_BTD))
        return scores_BTV.transpose(1, 2)


def gpt(
    *,
    vocabulary: int = 97,
    window: int = 96,
    layers: int = 2,
    width: int = 128,
    heads: int = 4,
    dropout: float = 0.0,
    tied: bool = False,
) -> nn.Sequential:
    """tokens_BT (B, T) int64, T at most `window` -> scores (B, V, T); 433,920 parameters as it is.

    tied: the first and the last layer share their matrix, as in GPT-2; 421,504 parameters.
    The list has layers + 2 entries.

    Raises ValueError for heads that do not divide the width.
    """
    first = TokensAndPlaces(vocabulary, window, width, dropout)
    blocks = [DecoderBlock(width, heads, dropout) for _ in range(layers)]
    last = NextToken(width, vocabulary, first.tokens.weight if tied else None)
    model = nn.Sequential(first, *blocks, last)
    start_small(model)
    return model
