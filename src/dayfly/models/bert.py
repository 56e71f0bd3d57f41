"""BERT, to classify texts and to find answers in them: large parameters, many equal layers.

Devlin and others, "BERT: Pre-training of Deep Bidirectional Transformers for Language
Understanding" (2018). The words are those of `bert-base-uncased`: 30,522 of them, of which 0 pads a
text, 101 begins it and 102 ends each of its parts.

What the papers' tables say of its size, and what that is here:

    Hydrozoa, table 2    BERT-12 108.9M    109M parameters with answers' head: 108,893,186
    FasDL, table II      base 417.17 MB    417.65 MiB, for two classes; the matrices of embeddings
                                           (without parts), encoder and pooler alone, without biases
                                           and norms, are 109,358,592, or 417.17 MiB
    FuncPipe, table 1    large 1153 MB     the 24 encoder layers alone: 302,309,376, or 1153.2 MiB;
                                           its published program learns a text of a dozen words,
                                           whose embeddings weigh nothing. In all 1278.5 MiB
    CE-scaling, IV-A     base 340 MB       not reached: 437.9 MB. 340 million is how many
                                           parameters Devlin et al. count for BERT large

Shapes: B samples, T tokens, D width.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from dayfly.models.attention import SelfAttention, start_small

#: What passes between layers: hidden_BTD (B, T, D), and heard_BT (B, T) bool, False for padding.
Hidden = tuple[torch.Tensor, torch.Tensor]
PADDING, BEGIN, END = 0, 101, 102


class Embeddings(nn.Module):
    """tokens_BT (B, T) int64 -> hidden and heard.

    The first part of a text (a question) ends with `END`; what follows is the second.
    """

    def __init__(self, vocabulary: int, positions: int, width: int, dropout: float) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(positions, width)
        self.parts = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens_BT: torch.Tensor) -> Hidden:
        """Words, places and parts, added and normalised."""
        heard_BT = tokens_BT != PADDING
        ends = (tokens_BT == END).long()
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


def bert(
    task: Literal["classes", "answers"] = "classes",
    *,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    vocabulary: int = 30_522,
    positions: int = 512,
    classes: int = 2,
    dropout: float = 0.1,
) -> nn.Sequential:
    """tokens_BT (B, T) int64, T at most `positions` -> scores of the task; layers + 2 entries.

    task: "classes" of whole texts (CoLA, IMDb), or "answers" in them (SQuAD).

    Raises ValueError for another task, or heads that do not divide the width.
    """
    if task not in ("classes", "answers"):
        raise ValueError(f'BERT for {task!r}: give "classes" or "answers"')
    head = Answers(width) if task == "answers" else Classifier(width, classes, dropout)
    encoder = [EncoderLayer(width, heads, dropout) for _ in range(layers)]
    model = nn.Sequential(Embeddings(vocabulary, positions, width, dropout), *encoder, head)
    start_small(model)
    return model


def bert_base(task: Literal["classes", "answers"] = "classes", classes: int = 2) -> nn.Sequential:
    """Width 768; 14 layers, 109,483,778 parameters for two classes (answers: 108,893,186)."""
    return bert(task, classes=classes)


def bert_large(task: Literal["classes", "answers"] = "classes", classes: int = 2) -> nn.Sequential:
    """Width 1024; 26 layers, 335,143,938 parameters for two classes (answers: 334,094,338)."""
    return bert(task, layers=24, width=1024, heads=16, classes=classes)
