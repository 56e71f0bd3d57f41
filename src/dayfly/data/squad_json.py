"""SQuAD 1.1: questions about paragraphs, whose answers are spans of them, in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dayfly.data.base import Array, DataSource, Samples
from dayfly.data.files import found, needed, reading
from dayfly.data.spool import Spool
from dayfly.data.words import WORD, Vocabulary, words_of
from dayfly.errors import RequestError, in_short
from dayfly.misspelt import suggests

_NAMES = {"train": "train-v1.1.json", "val": "dev-v1.1.json"}


@suggests
@dataclass(frozen=True, kw_only=True)
class SQuADFiles(DataSource):
    """A directory of `train-v1.1.json` and, to validate on, `dev-v1.1.json`.

    x is (length,) int64: <begin> question <end> paragraph <end>, cut or padded. y is (2,) int64:
    where the answer's first and last word stand in x; of several answers the first counts. Words
    are in lower case, signs by themselves. Questions whose answer is cut off are left out, and
    counted in a note.

    Args:
        length: numbers of a sample.
        vocabulary: words that have a number, <pad>, <unk>, <begin> and <end> among them.
    """

    name: ClassVar[str] = "squad"
    form: ClassVar[str] = "SQuAD's JSON"

    length: int = 384
    vocabulary: int = 30_522

    @classmethod
    def recognises(cls, path: Path) -> bool:
        return path.is_dir() and found(path, _NAMES["train"]) is not None

    def read(self) -> Samples:
        self.whole("length", 3)
        self.whole("vocabulary", 5)
        train = needed(self.expanded_path, self.form, _NAMES["train"])
        texts = (
            text for _, question, paragraph, _ in _rows(train) for text in (question, paragraph)
        )
        vocabulary = Vocabulary.of(map(words_of, texts), self.vocabulary)
        notes, arrays = [vocabulary.note], dict[str, Array]()
        for part, name in _NAMES.items():
            path = found(self.expanded_path, name)
            if path is None:
                continue
            x, y, lost = Spool(np.int64, (self.length,)), Spool(np.int64, (2,)), 0
            for _, question, paragraph, answer in _rows(path):
                asked = words_of(question)
                at = np.array(_span(paragraph, answer)) + len(asked) + 2
                if at[1] >= self.length:
                    lost += 1
                    continue
                x.add(vocabulary.padded([asked, words_of(paragraph)], self.length)[None])
                y.add(at[None])
            if not x.rows:
                raise RequestError(f"{path}: no answer is within {self.length} words: raise length")
            if lost:
                notes.append(f"{path.name}: {lost} answers beyond {self.length} words are left out")
            arrays |= {f"x_{part}": x.array(), f"y_{part}": y.array()}
        return Samples(arrays, notes=notes, vocabulary=vocabulary.words)


def _rows(path: Path) -> Iterator[tuple[str, str, str, tuple[int, int]]]:
    """Id, question, paragraph, and first letter of the answer and the one after its last."""
    with reading(path) as file:
        try:
            tree: Any = json.load(file)
            articles = tree["data"]
        except (ValueError, KeyError, TypeError) as error:
            raise RequestError(f"{path} is no JSON of SQuAD: {in_short(error)}") from error
    name = "?"
    try:
        for article in articles:
            for paragraph in article["paragraphs"]:
                text = paragraph["context"]
                for asked in paragraph["qas"]:
                    name = asked["id"]
                    if not asked["answers"]:
                        raise RequestError(
                            f"{path}, question {name}: it has no answer: give version 1.1"
                        )
                    answer = asked["answers"][0]
                    start, words = answer["answer_start"], answer["text"]
                    if not words.strip() or text[start : start + len(words)] != words:
                        raise RequestError(
                            f"{path}, question {name}: its answer {words!r} is not at letter "
                            f"{start} of the paragraph: mend it, or take it out"
                        )
                    yield name, asked["question"], text, (start, start + len(words))
    except (KeyError, TypeError, AttributeError) as error:
        raise RequestError(
            f"{path}, after question {name}: it is not as SQuAD's JSON: {in_short(error)}"
        ) from error


def _span(paragraph: str, answer: tuple[int, int]) -> tuple[int, int]:
    """The first and the last word of a paragraph that an answer touches, by their numbers."""
    touched = [
        number
        for number, word in enumerate(WORD.finditer(paragraph))
        if word.start() < answer[1] and word.end() > answer[0]
    ]
    return touched[0], touched[-1]
