"""Errors of what trains jobs, in the words of a script: what it has is no job, and has no flags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from dayfly.errors import RequestError

_TUPLE = r"((?:\d+,)*\d+)"
#: What a job is said to have, and what `dayfly.parallel` is given in its place; in this order.
_WORDS: tuple[tuple[str, str], ...] = (
    (rf"--cut {_TUPLE}", r"cut=(\1,)"),
    (r"--cut\b", "cut="),
    (r"--micro-batches (\d+)", r"micro_batches=\1"),
    (r"--micro-batches", "micro_batches="),
    (r"--precision (\w+)", r'precision="\1"'),
    (r"--schedule (\S+)", r'schedule="\1"'),
    (r"--checkpoint-every (\S+) s\b", r"checkpoint_every_s=\1"),
    (r"change batch_size, --workers, --replicas or", "change the batch, --workers or"),
    (r"give --replicas", "give another number of stages"),
    (r"give the job a step that returns", "give dayfly.parallel a step= that returns"),
    (r"give the job a step=\.\.\. that", "give dayfly.parallel a step= that"),
    (r"the job's (\w+) function\b", r"the script's \1"),
    (r"the job's model's", "the model's"),
    (r"the job's accumulate", "micro_batches="),
    (r"the job's (\w+)", r"the script's \1"),
    (r"the job (has|fails)", r"dayfly.parallel \1"),
    (r"dayfly.parallel fails on one", "the script fails on one"),
    (r"\bthe job\b", "the script"),
    (r"\ba job\b", "a script"),
)


def in_words_of_a_script(text: str) -> str:
    """Returns what an error says of a job, said of a script's arguments to `dayfly.parallel`."""
    for pattern, words in _WORDS:
        text = re.sub(pattern, words, text)
    return text


@contextmanager
def script_words() -> Iterator[None]:
    """Refusals that are raised inside speak of the script; where they were raised is kept."""
    try:
        yield
    except RequestError as error:
        error.args = tuple(
            in_words_of_a_script(one) if isinstance(one, str) else one for one in error.args
        )
        raise
