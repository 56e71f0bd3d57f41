"""Texts as numbers: a simple vocabulary, made of the words of the training set.

Numbers 0 to 3 stand for padding, an unknown word, the beginning and the end; the words follow, the
most frequent first, those that are equally frequent in alphabetical order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

SPECIAL = ("<pad>", "<unk>", "<begin>", "<end>")
PADDING, UNKNOWN, BEGIN, END = range(4)
#: A word, or a sign that is none.
WORD = re.compile(r"\w+|[^\w\s]")


def words_of(text: str) -> list[str]:
    """Words and signs of a text, in lower case."""
    return [word.lower() for word in WORD.findall(text)]


@dataclass(frozen=True)
class Vocabulary:
    """Words in the order of their numbers, the special ones first."""

    words: Sequence[str]

    @classmethod
    def of(cls, texts: Iterable[Iterable[str]], most: int) -> Vocabulary:
        """Counts the words of texts.

        Args:
            most: words, the special ones among them.
        """
        counts = Counter(word for text in texts for word in text)
        for one in SPECIAL:
            counts.pop(one, None)
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
        return cls([*SPECIAL, *ordered[: most - len(SPECIAL)]])

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    def numbers(self, words: Iterable[str]) -> list[int]:
        """Numbers of words."""
        return [self._numbers.get(word, UNKNOWN) for word in words]

    def padded(self, texts: Sequence[Sequence[str]], length: int) -> NDArray[np.int64]:
        """<begin> text <end> text <end> ..., cut or filled up to a length (L,)."""
        numbers = [BEGIN]
        for words in texts:
            numbers += [*self.numbers(words), END]
        row = np.full(length, PADDING, np.int64)
        row[: len(numbers)] = numbers[:length]
        return row

    @property
    def note(self) -> str:
        """How many, and which come first."""
        return f"vocabulary of {len(self.words)}: {' '.join(self.words[:12])} ..."
