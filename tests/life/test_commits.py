"""Which parts make a checkpoint that is to be committed."""

from __future__ import annotations

from itertools import permutations

import pytest

from dayfly.life.commits import (
    Checkpoint,
    CheckpointPart,
    Commit,
    Uncommitted,
    digest_of,
    folder_of,
)


def parts(step: int, *names: str) -> tuple[CheckpointPart, ...]:
    return tuple(CheckpointPart(f"{folder_of(step)}/{name}", 1, digest_of(b"x")) for name in names)


def test_the_digest_of_a_commit_is_what_it_ever_was() -> None:
    """Checkpoints of earlier versions are read by it."""
    one = CheckpointPart("checkpoint/000000008/part", 3, "0" * 32)
    assert Checkpoint(8, (one,)).digest == "b63543e503ea844af1b4594c3b17f33f"


def test_a_commit_that_says_what_was_written_is_read() -> None:
    written = Checkpoint(8, parts(8, "a"))
    for whole in ("", written.digest):
        read = Commit(written.step, written.parts, whole)
        read.check_read()
        assert read.checkpoint == written


@pytest.mark.parametrize(
    ("commit", "words"),
    [
        (Commit(8, ()), "parts is empty"),
        (Commit(8, parts(8, "a"), "0" * 32), "it was changed after it was written"),
        (Commit(8, parts(4, "a")), "step is 8, but checkpoint/000000004/a is a part of it"),
    ],
)
def test_a_commit_that_was_damaged_is_refused(commit: Commit, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        commit.check_read()


A, B, C = parts(8, "a", "tree.json"), parts(8, "b"), parts(8, "c")


@pytest.mark.parametrize("order", [*permutations(enumerate((A, B, C)))])
def test_the_last_part_makes_it_whole_in_the_order_of_ranks(
    order: tuple[tuple[int, tuple[CheckpointPart, ...]], ...],
) -> None:
    arriving = Uncommitted(3, 4)
    *first, (rank, last) = order
    assert [arriving.add(8, *one) for one in first] == [None, None]
    assert arriving.add(8, rank, last) == [*A, *B, *C]


def test_a_rank_twice_is_not_two_ranks_and_the_later_word_counts() -> None:
    arriving = Uncommitted(2, 4)
    assert arriving.add(8, 0, A) is None
    assert arriving.add(8, 0, C) is None
    assert arriving.add(8, 1, B) == [*C, *B]


def test_parts_of_different_steps_make_no_checkpoint() -> None:
    arriving = Uncommitted(2, 4)
    assert arriving.add(8, 0, A) is None
    assert arriving.add(12, 1, B) is None


@pytest.mark.parametrize("step", [0, 7, 8])
def test_what_counts_is_never_one_before(step: int) -> None:
    arriving = Uncommitted(1, 8)
    assert arriving.add(step, 0, A) is None
    assert arriving.add(9, 0, A) == [*A]


def test_a_commit_forgets_what_is_before_it_and_keeps_what_comes_after() -> None:
    arriving = Uncommitted(2, 0)
    for step in (4, 8, 12):
        assert arriving.add(step, 0, A) is None
    assert arriving.add(8, 1, B) is not None
    arriving.committed(8)
    assert arriving.committed_step == 8
    assert list(arriving._arrived) == [12], "what is late takes no memory"
    assert arriving.add(4, 1, B) is None
    assert arriving.add(8, 1, B) is None
    assert arriving.add(12, 1, B) == [*A, *B]


def test_one_that_was_not_committed_is_whole_still() -> None:
    arriving = Uncommitted(2, 4)
    arriving.add(8, 0, A)
    assert arriving.add(8, 1, B) == arriving.add(8, 1, B) == [*A, *B]


@pytest.mark.parametrize(
    ("step", "living", "may"),
    [
        (8, {1, 2}, True),
        (8, {0, 1, 2}, True),
        (8, {1}, False),
        (12, {1, 2}, False),
        (4, {0, 1, 2}, False),
    ],
)
def test_it_may_come_as_long_as_those_live_whose_parts_are_missing(
    step: int, living: set[int], may: bool
) -> None:
    arriving = Uncommitted(3, 4)
    arriving.add(8, 0, A)
    assert arriving.may_come(step, living) is may
