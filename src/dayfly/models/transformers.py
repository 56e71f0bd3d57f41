"""Transformers: the attention that both have, BERT and GPT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F


class SelfAttention(nn.Module):
    """x_BTD (B, T, D) -> (B, T, D); 4 D^2 + 4 D parameters.

    Args:
        width: D.
        heads: number of them; divides the width.
        dropout: of the shares of attention.
        causal: whether a token hears only those before it and itself; takes no mask then.
    """

    def __init__(self, width: int, heads: int, *, dropout: float = 0.0, causal: bool = False):
        super().__init__()
        if width % heads:
            raise ValueError(f"{heads} heads share a width of {width}: give one that they divide")
        self.heads, self.dropout, self.causal = heads, dropout, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x_BTD: torch.Tensor, heard_BT: torch.Tensor | None = None) -> torch.Tensor:
        """Returns what each token hears.

        Args:
            x_BTD: (B, T, D).
            heard_BT: (B, T) bool: which tokens are heard; None: all.

        Raises:
            ValueError: a mask for causal attention.
        """
        if self.causal and heard_BT is not None:
            raise ValueError("causal attention hears all tokens so far, so give it no heard_BT")
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, T, D / H)
            for part in self.qkv(x_BTD).chunk(3, dim=-1)
        )
        heard = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=None if heard_BT is None else heard_BT[:, None, None, :],
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.causal,
        )
        mixed: torch.Tensor = self.out(heard.transpose(1, 2).flatten(2))
        return mixed


@torch.no_grad()
def start_small(model: nn.Module, deviation: float = 0.02) -> None:
    """Begin as BERT and GPT do: normal weights of that deviation, biases of 0."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=deviation)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


#: What passes between layers: hidden_BTD (B, T, D), and heard_BT (B, T) bool, False for padding.
Hidden = tuple[torch.Tensor, torch.Tensor]
PADDING, BEGIN, END = 0, 101, 102


class Embeddings(nn.Module):
    """Embeds tokens_BT (B, T) int64; returns `Hidden`.

    The first part of a text (a question) ends with the first `end`; what follows is the second.
    None: texts have one part.
    """

    def __init__(
        self, vocabulary: int, positions: int, width: int, dropout: float, end: int | None = END
    ) -> None:
        super().__init__()
        self.end = end
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(positions, width)
        self.parts = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens_BT: torch.Tensor) -> Hidden:
        """Words, places and parts, added and normalised."""
        heard_BT = tokens_BT != PADDING
        parts_BT = torch.zeros_like(tokens_BT)
        if self.end is not None:
            ends = (tokens_BT == self.end).long()
            parts_BT = ((ends.cumsum(1) - ends > 0) & heard_BT).long()
        places_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        hidden_BTD = self.words(tokens_BT) + self.places(places_T) + self.parts(parts_BT)
        return self.dropout(self.norm(hidden_BTD)), heard_BT


class EncoderLayer(nn.Module):
    """hidden and heard -> the same; 12 D^2 + 13 D parameters."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads, dropout=dropout)
        self.norm_1 = nn.LayerNorm(width, eps=1e-12)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm_2 = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Hidden) -> Hidden:
        """Attention, then a perceptron; each is added to what it was given, and normalised."""
        x_BTD, heard_BT = hidden
        x_BTD = self.norm_1(x_BTD + self.dropout(self.attention(x_BTD, heard_BT)))
        inner = nn.functional.gelu(self.up(x_BTD))
        return self.norm_2(x_BTD + self.dropout(self.down(inner))), heard_BT


class Classifier(nn.Module):
    """hidden and heard -> scores (B, classes), from the first token, by way of the pooler."""

    def __init__(self, width: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.pooler, self.dropout = nn.Linear(width, width), nn.Dropout(dropout)
        self.scores = nn.Linear(width, classes)

    def forward(self, hidden: Hidden) -> torch.Tensor:
        """Scores of the text's class."""
        pooled = torch.tanh(self.pooler(hidden[0][:, 0]))
        scores: torch.Tensor = self.scores(self.dropout(pooled))
        return scores


class Answers(nn.Module):
    """hidden and heard -> scores (B, T, 2) of each token to begin the answer, and to end it.

    With targets (B, 2), positions of first and last token, `cross_entropy` is BERT's loss.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scores = nn.Linear(width, 2)

    def forward(self, hidden: Hidden) -> torch.Tensor:
        """Scores of the answer's first and last token."""
        scores_BT2: torch.Tensor = self.scores(hidden[0])
        return scores_BT2


class Words(nn.Module):
    """hidden and heard -> scores (B, V, T) of the word at each place, for `cross_entropy`.

    Args:
        weight: (V, D) of the embedding, to be shared; None: its own.
    """

    def __init__(self, width: int, vocabulary: int, weight: torch.Tensor | None) -> None:
        super().__init__()
        self.dense, self.norm = nn.Linear(width, width), nn.LayerNorm(width, eps=1e-12)
        self.scores = nn.Linear(width, vocabulary)
        if weight is not None:
            self.scores.weight = weight

    def forward(self, hidden: Hidden) -> torch.Tensor:
        """Scores of the words."""
        scores_BTV: torch.Tensor = self.scores(self.norm(F.gelu(self.dense(hidden[0]))))
        return scores_BTV.transpose(1, 2)


Task = Literal["classes", "answers", "words"]


def bert(
    task: Task = "classes",
    *,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    vocabulary: int = 30_522,
    positions: int = 512,
    classes: int = 2,
    dropout: float = 0.1,
    end: int | None = END,
    tied: bool = True,
) -> nn.Sequential:
    """tokens_BT (B, T) int64, T at most `positions` -> scores of the task; layers + 2 entries.

    Args:
        task: "classes" of whole texts (CoLA, IMDb), "answers" in them (SQuAD), or "words" that were
            masked (`models.masking`).
        end: the word that ends the first part of a text; None: texts have one part.
        tied: of words: the first and the last layer share their matrix.

    Raises:
        ValueError: another task, or heads that do not divide the width.
    """
    first = Embeddings(vocabulary, positions, width, dropout, end)
    heads_of: dict[str, Callable[[], nn.Module]] = {
        "classes": lambda: Classifier(width, classes, dropout),
        "answers": lambda: Answers(width),
        "words": lambda: Words(width, vocabulary, first.words.weight if tied else None),
    }
    if task not in heads_of:
        raise ValueError(f"BERT for {task!r}: give one of {', '.join(heads_of)}")
    encoder = [EncoderLayer(width, heads, dropout) for _ in range(layers)]
    model = nn.Sequential(first, *encoder, heads_of[task]())
    start_small(model)
    return model


def bert_base(task: Task = "classes", classes: int = 2) -> nn.Sequential:
    """Width 768; 14 layers, 109,483,778 parameters for two classes (answers: 108,893,186; words:
    109,514,298)."""
    return bert(task, classes=classes)


def bert_large(task: Task = "classes", classes: int = 2) -> nn.Sequential:
    """Width 1024; 26 layers, 335,143,938 parameters for two classes (answers: 334,094,338)."""
    return bert(task, layers=24, width=1024, heads=16, classes=classes)


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

    Args:
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

    The list has layers + 2 entries.

    Args:
        tied: the first and the last layer share their matrix, as in GPT-2; 421,504 parameters.

    Raises:
        ValueError: the heads do not divide the width.
    """
    first = TokensAndPlaces(vocabulary, window, width, dropout)
    blocks = [DecoderBlock(width, heads, dropout) for _ in range(layers)]
    last = NextToken(width, vocabulary, first.tokens.weight if tied else None)
    model = nn.Sequential(first, *blocks, last)
    start_small(model)
    return model
