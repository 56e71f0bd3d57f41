"""WikiText-2 and -103: words between spaces, one file each for training, validation and test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from dayfly.data.base import Array, DataSource, Samples
from dayfly.data.files import found, lines, needed
from dayfly.data.spool import Spool
from dayfly.data.words import END, Vocabulary
from dayfly.errors import RequestError
from dayfly.misspelt import suggests

_NAMES = {
    "train": ("wiki.train.tokens", "wiki.train.raw"),
    "val": ("wiki.valid.tokens", "wiki.valid.raw"),
}


@suggests
@dataclass(frozen=True, kw_only=True)
class WikiText(DataSource):
    """A directory of `wiki.train.tokens` and `wiki.valid.tokens`, as text to continue.

    x is (length,) int64, y the same one word on. Words are what stands between spaces; a line ends
    with <end>. The text is cut into samples one after another; what is left at its end is dropped.

    Args:
        length: words of a sample.
        vocabulary: words that have a number, <pad>, <unk>, <begin> and <end> among them.
    """

    name: ClassVar[str] = "wikitext"
    form: ClassVar[str] = "WikiText"

    length: int = 128
    vocabulary: int = 33_280

    @classmethod
    def recognises(cls, path: Path) -> bool:
        return path.is_dir() and found(path, *_NAMES["train"]) is not None

    def read(self) -> Samples:
        self.whole("length", 1)
        self.whole("vocabulary", 5)
        train = needed(self.expanded_path, self.form, *_NAMES["train"])
        vocabulary = Vocabulary.of(_words(train), self.vocabulary)
        arrays: dict[str, Array] = {}
        for part, names in _NAMES.items():
            path = found(self.expanded_path, *names)
            if path is None:
                continue
            spool = Spool(np.int64)
            for words in _words(path):
                spool.add(np.array([*vocabulary.numbers(words), END]))
            rows = (spool.rows - 1) // self.length
            if rows < 1:
                raise RequestError(
                    f"{path} has {spool.rows} words, fewer than a sample needs: lower length"
                )
            text, whole = spool.array(), rows * self.length
            arrays[f"x_{part}"] = text[:whole].reshape(rows, self.length)
            arrays[f"y_{part}"] = text[1 : whole + 1].reshape(rows, self.length)
        return Samples(arrays, notes=[vocabulary.note], vocabulary=vocabulary.words)


def _words(path: Path) -> Iterator[list[str]]:
    return (line.split() for _, line in lines(path) if line.strip())
