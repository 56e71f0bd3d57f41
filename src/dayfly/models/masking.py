"""Masked words (BERT section 3.1): some words of a text are hidden, and the model is to find them.

words      the  old  dog  ran  home
masked     the  [M]  dog  saw  home       of the chosen: 8 in 10 the mask, 1 another word, 1 as is
targets     -   old   -   ran  home       -100 where none was chosen
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

#: The target of a word that was not chosen, as `cross_entropy` ignores it.
IGNORED = -100


@dataclass(frozen=True)
class MaskWords:
    """A transform: words_T (T,) int64 -> (2, T) int64, what the model sees and what it is to find.

    As `transform` of a job it draws for each sample, by seed, epoch and sample; as `eval_transform`
    the same in each epoch. So neither depends on who computes a sample.

    Args:
        vocabulary: words are numbered from 0 to before it.
        mask: number of the mask; None: `vocabulary`, so the model has one word more.
        share: of the words that are chosen, above 0 and at most 1.
        special: numbers below it, such as padding, are never chosen, nor put in a word's place.

    Raises:
        ValueError: a share or a number that cannot be meant.
    """

    vocabulary: int
    mask: int | None = None
    share: float = 0.15
    special: int = 4

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share {self.share!r}: give a number above 0, at most 1")
        if not 0 <= self.special < self.vocabulary:
            raise ValueError(f"special {self.special!r}: give a number below the vocabulary")

    def __call__(self, words_T: torch.Tensor) -> torch.Tensor:
        """Draws from torch's generator."""
        mask = self.vocabulary if self.mask is None else self.mask
        chosen_T = (torch.rand(words_T.shape) < self.share) & (words_T >= self.special)
        what_T = torch.rand(words_T.shape)
        others_T = torch.randint(self.special, self.vocabulary, words_T.shape)
        seen_T = torch.where(chosen_T & (what_T < 0.8), mask, words_T)
        seen_T = torch.where(chosen_T & (what_T >= 0.9), others_T, seen_T)
        return torch.stack([seen_T, torch.where(chosen_T, words_T, IGNORED)])


def masked_words_step(model: nn.Module, batch: Any) -> Mapping[str, Any]:
    """A job's step for `MaskWords`: the mean loss of the words to find, and how many are found.

    Args:
        model: tokens_BT -> scores (B, V, T), such as `bert("words")`.
        batch: x (B, 2, T) of `MaskWords`, and targets, which are not used.
    """
    seen_BT, targets_BT = batch[0].unbind(1)
    scores_BVT = model(seen_BT)
    asked_BT = targets_BT != IGNORED
    found = (scores_BVT.argmax(1) == targets_BT)[asked_BT].float()
    loss = F.cross_entropy(scores_BVT, targets_BT, ignore_index=IGNORED)
    return {"loss": loss, "log": {"found": (found.mean(), len(found))}}
