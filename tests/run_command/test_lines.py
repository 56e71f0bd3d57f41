"""Output that comes in any pieces becomes whole lines; lines written over become few."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.life.platforms.local import LogFiles
from dayfly.runs.scripts.logs import STATE_EVERY_S, Follower, PrintedLines

pytestmark = pytest.mark.long


def all_lines(*pieces: str, now_s: float = 0.0) -> list[str]:
    lines = PrintedLines()
    found = [line for piece in pieces for line in lines.feed(piece, now_s)]
    return found + lines.end()


@given(st.text(st.characters(blacklist_characters="\r")), st.lists(st.integers(0, 200)))
def test_text_without_returns_is_its_lines_however_it_comes(text: str, cuts: list[int]) -> None:
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces = [text[start:stop] for start, stop in pairwise(places)]
    whole = text.split("\n")
    assert all_lines(*pieces) == (whole if whole[-1] else whole[:-1])


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        (["a\r\nb\r\n"], ["a", "b"]),
        (["a\r", "\nb"], ["a", "b"]),
        (["\r 1%\r 2%\r100%\nnext\n"], ["100%", "next"]),
        (["\r 1%", "\r 2%", "\r100%", "\n"], [" 1%", "100%"]),
        (["\r 1%", "\r 2%", "\r 3%"], [" 1%", " 3%"]),
        (["\r 1%", "\r", "\n"], [" 1%"]),
        (["loading", " ...", "done\n"], ["loading ...done"]),
        (["\n\na\n"], ["", "", "a"]),
        (["wiped out\r         \rrest\n"], ["rest"]),
    ],
)
def test_a_line_that_is_written_over_is_what_stands_there_last(
    pieces: list[str], lines: list[str]
) -> None:
    assert all_lines(*pieces) == lines


def test_states_of_a_bar_are_shown_now_and_then() -> None:
    lines, shown = PrintedLines(), []
    for number in range(18):
        shown += lines.feed(f"\r{number}%", number * STATE_EVERY_S / 4)
    assert shown == ["0%", "4%", "8%", "12%", "16%"]
    assert lines.end() == ["17%"]


def test_a_line_without_end_is_shown_in_pieces() -> None:
    lines = PrintedLines()
    shown = lines.feed("x" * 200_000, 0.0) + lines.end()
    assert len(shown) > 1
    assert "".join(shown) == "x" * 200_000


def test_what_was_in_a_log_before_is_passed_over_and_nothing_is_lost(tmp_path: Path) -> None:
    files = LogFiles(tmp_path)
    logs = [files.path(name) for name in ("worker-0", "worker-1")]
    logs[0].write_text("an earlier life\n")
    out = io.StringIO()
    follower = Follower(files, ["worker-0", "worker-1"], out)
    with logs[0].open("a") as file:
        file.write("first ü\nhal")
    follower.follow()
    assert out.getvalue() == "[rank 0] first ü\n"
    logs[1].write_bytes(b"other\xff\n")
    with logs[0].open("a") as file:
        file.write("f\nno end")
    follower.drain()
    assert out.getvalue().splitlines()[1:] == [
        "[rank 0] half",
        "[rank 0] no end",
        "[rank 1] other�",
    ]


def test_a_character_cut_in_two_is_put_together(tmp_path: Path) -> None:
    log, out = tmp_path / "worker-0.log", io.StringIO()
    follower = Follower(LogFiles(tmp_path), ["worker-0"], out)
    for part in ("ü\n".encode()[:1], "ü\n".encode()[1:]):
        with log.open("ab") as file:
            file.write(part)
        follower.follow()
    assert out.getvalue() == "[rank 0] ü\n"


class _Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_that_nobody_reads_is_no_reason_to_end(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    follower = Follower(LogFiles(tmp_path), ["worker-0"], _Gone())
    log.write_text("a line\n")
    follower.follow()
    follower.drain()


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_prefixes_have_colours_on_a_terminal(tmp_path: Path) -> None:
    log, out = tmp_path / "worker-0.log", _Terminal()
    follower = Follower(LogFiles(tmp_path), ["worker-0"], out)
    log.write_text("a line\n")
    follower.drain()
    assert out.getvalue() == "\033[36m[rank 0]\033[0m a line\n"
