"""The table of channels in the docs says what the channels say of themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dayfly.wire.channels import CHANNELS
from dayfly.wire.keys import HEADER_BYTES

PAGE = (Path(__file__).parents[2] / "docs" / "channels.md").read_text()
ROWS = {
    cells[0].strip("` ").partition("://")[0]: cells
    for line in PAGE.splitlines()
    if re.match(r"\| `[a-z0-9]+://", line)
    for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
}


@pytest.mark.parametrize("scheme", sorted(ROWS))
def test_a_row_is_true(scheme: str) -> None:
    kind = CHANNELS[scheme]
    able = kind.abilities
    _, _, get, sums, death, at_once, chunks = ROWS[scheme]
    assert get == ("waits" if able.blocks else "asks")
    assert sums == ("yes" if able.sums else "no")
    assert death == ("one worker catches up" if able.replays else "all go back")
    assert at_once == str(able.in_flight)
    assert chunks == f"{able.chunk_bytes // 1024} KiB"


def test_every_channel_has_a_row() -> None:
    assert set(ROWS) <= CHANNELS.keys()
    for kind in set(CHANNELS.values()):
        assert len(set(kind.schemes) & ROWS.keys()) == 1, kind.usage
        assert all(f"`{scheme}://" in PAGE for scheme in kind.schemes if "valkey" not in scheme)


@pytest.mark.parametrize("scheme", sorted(ROWS))
@pytest.mark.parametrize("nbytes", [0, 1000, 10**6])
def test_costs_are_what_the_page_says(scheme: str, nbytes: int) -> None:
    cost = CHANNELS[scheme].cost(nbytes)
    items = 1
    if scheme == "dynamodb" and nbytes > 16 * 1024:
        items += -(-(nbytes + HEADER_BYTES) // (390 * 1024))
    assert (cost.puts, cost.gets) == (items, items)
    assert cost.bytes_up == cost.bytes_down == nbytes + HEADER_BYTES
