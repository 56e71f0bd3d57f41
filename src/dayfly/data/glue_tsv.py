"""GLUE's tasks: TSV files of sentences, or pairs of them, each with a label."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from dayfly.data.base import Array, DataSource, Samples
from dayfly.data.files import found, is_number, lines, needed
from dayfly.data.spool import Spool
from dayfly.data.words import Vocabulary, words_of
from dayfly.errors import RequestError
from dayfly.misspelt import suggests

#: Columns of sentences, and of the label, by which a task is known; CoLA's files name none.
_COLUMNS = (
    (("sentence",), "label"),  # SST-2
    (("#1 String", "#2 String"), "Quality"),  # MRPC
    (("question1", "question2"), "is_duplicate"),  # QQP
    (("sentence1", "sentence2"), "gold_label"),  # MNLI
    (("sentence1", "sentence2"), "score"),  # STS-B
    (("sentence1", "sentence2"), "label"),  # RTE, WNLI
    (("question", "sentence"), "label"),  # QNLI
)
_VALIDATION = ("dev.tsv", "dev_matched.tsv")


@suggests
@dataclass(frozen=True, kw_only=True)
class GLUETask(DataSource):
    """A directory of `train.tsv` and `dev.tsv` of CoLA, SST-2, MRPC, QQP, MNLI, QNLI, RTE or STS-B.

    x is (length,) int64: <begin> sentence <end> second sentence <end>, cut or padded. y is int64,
    classes in alphabetical order; of STS-B float32. Words are in lower case, signs by themselves.

    Args:
        length: numbers of a sample.
        vocabulary: words that have a number, <pad>, <unk>, <begin> and <end> among them.
    """

    name: ClassVar[str] = "glue"
    form: ClassVar[str] = "GLUE's TSV"

    length: int = 128
    vocabulary: int = 30_522

    @classmethod
    def recognises(cls, path: Path) -> bool:
        return path.is_dir() and found(path, "train.tsv") is not None

    def read(self) -> Samples:
        self.whole("length", 3)
        self.whole("vocabulary", 5)
        train = needed(self.expanded_path, self.form, "train.tsv")
        files = {"train": train}
        if (unseen := found(self.expanded_path, *_VALIDATION)) is not None:
            files["val"] = unseen
        texts = (text for _, sentences, _ in _rows(train) for text in sentences)
        vocabulary = Vocabulary.of(map(words_of, texts), self.vocabulary)
        labels = sorted({label for _, _, label in _rows(train)})
        scores = len(labels) > 3 and all(map(is_number, labels))  # STS-B
        number: Callable[[str], float] = float if scores else _numbering(labels)
        arrays: dict[str, Array] = {}
        for part, path in files.items():
            x = Spool(np.int64, (self.length,))
            y = Spool(np.float32 if scores else np.int64)
            for line, sentences, label in _rows(path):
                try:
                    y.add(np.array([number(label)]))
                except (KeyError, ValueError):
                    raise RequestError(
                        f"{path}, line {line}: its label is {label!r}, which is none of "
                        f"{', '.join(labels[:5])}: put a whole file there"
                    ) from None
                row = vocabulary.padded([words_of(text) for text in sentences], self.length)
                x.add(row[None])
            arrays |= {f"x_{part}": x.array(), f"y_{part}": y.array()}
        classes = () if scores else labels
        return Samples(arrays, classes, notes=[vocabulary.note], vocabulary=vocabulary.words)


def _numbering(labels: list[str]) -> Callable[[str], float]:
    return {label: number for number, label in enumerate(labels)}.__getitem__


def _rows(path: Path) -> Iterator[tuple[int, list[str], str]]:
    """Line, sentences and label of each sample. GLUE's files have no quotes."""
    at: list[int] | None = None
    width = 0
    for number, line in lines(path):
        cells = line.split("\t")
        if at is None:
            width = len(cells)
            at = _columns(path, cells)
            if at != _COLA:
                continue
        if not line.strip():
            continue
        if len(cells) != width:
            raise RequestError(
                f"{path}, line {number}: it has {len(cells)} cells, and the first line {width}: "
                "put a whole file there"
            )
        *sentences, label = (cells[one] for one in at)
        if not label:
            raise RequestError(f"{path}, line {number}: it has no label: take the line out")
        yield number, sentences, label
    if at is None:
        raise RequestError(f"{path} is empty: put a whole file there")


#: Columns of CoLA's sentence and label.
_COLA = [3, 1]


def _columns(path: Path, first: list[str]) -> list[int]:
    for sentences, label in _COLUMNS:
        if {*sentences, label} <= set(first):
            return [first.index(one) for one in (*sentences, label)]
    if len(first) == 4 and first[1] in ("0", "1"):
        return _COLA
    raise RequestError(
        f"{path} has the columns {', '.join(first[:6])}, which are of no task of GLUE: read it by "
        "dayfly.data.csv"
    )
