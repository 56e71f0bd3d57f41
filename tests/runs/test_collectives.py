"""Which collective a run takes, and that runs with each of them give what they should."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dayfly
from dayfly.errors import RequestError
from dayfly.life.faults import Fault
from dayfly.runs.job_record import Record
from dayfly.runs.settings import Settings
from dayfly.wire import channels
from dayfly.wire.channels.kind import Abilities
from dayfly.wire.channels.kinds import Files
from dayfly.wire.collectives import COLLECTIVES, names
from tests.cli import command
from tests.runs import small

pytestmark = pytest.mark.long


class Summing(Files):
    """A kind of channel that sums."""

    schemes = ("ps",)
    abilities = Abilities(sums=True)
    immediate = False

    def check(self, url: str) -> None:
        return None


class Direct(Summing):
    """One over which workers reach each other."""

    schemes = ("tcp",)
    abilities = Abilities(direct=True)


class Stored(Summing):
    """A store beyond a link."""

    schemes = ("far",)
    abilities = Abilities()


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Summing(), Direct(), Stored()):
        monkeypatch.setitem(channels._BUILT_IN, kind.schemes[0], kind)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "scatter-reduce"),
        ({"channel": "file:///dev/shm/x"}, "scatter-reduce"),
        ({"uplink_mb_per_s": 10.0}, "overlapped"),
        ({"downlink_mb_per_s": 10.0}, "overlapped"),
        ({"latency_ms": 10.0}, "overlapped"),
        ({"channel": "far://x"}, "overlapped"),
        ({"channel": "tcp://"}, "ring"),
        ({"channel": "ps://x:1"}, "push-pull"),
        ({"channel": "ps://x:1", "collective": "ring"}, "ring"),
        ({"channel": "far://x", "collective": "scatter-reduce"}, "scatter-reduce"),
    ],
)
def test_the_collective_is_the_one_asked_for_or_suits_the_channel(
    settings: dict[str, Any], name: str
) -> None:
    chosen = Settings(workers=4, **settings)
    assert chosen.algorithm == name
    assert chosen.reducing is COLLECTIVES[name]


def test_the_aggregators_of_k_reduce() -> None:
    chosen = Settings(workers=4, collective="k-reduce", aggregators=3)
    assert len(chosen.reducing.sums(4, 100, 1)) == 3


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"collective": "shout"}, "'shout' is not known: give one of all-reduce, k-reduce"),
        ({"collective": "k-reduce"}, "k-reduce needs --aggregators: .*1 to 4"),
        ({"collective": "k-reduce", "aggregators": 5}, "--aggregators 5: give 1 to 4"),
        ({"aggregators": 2}, "--aggregators 2 is for --collective k-reduce: scatter-reduce has"),
        (
            {"collective": "push-pull"},
            "--collective push-pull needs a channel that sums, and file:///path only keeps",
        ),
        ({"collective": "push-pull", "channel": "tcp://"}, "needs a channel that sums"),
    ],
)
def test_wrong_requests(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        Settings(workers=4, **settings)


def test_the_help_names_them_all(tmp_path: Path) -> None:
    shown = command.here("train", "--help", cwd=tmp_path, COLUMNS="300").stdout
    assert f"All-reduce algorithm: {', '.join(names())}." in shown


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"collective": "overlapped"}, "grad-put-sum"),
        pytest.param(
            {"collective": "k-reduce", "aggregators": 2}, "grad-put-part", marks=pytest.mark.slow
        ),
    ],
)
def test_those_that_sum_in_rank_order_train_the_same(
    settings: dict[str, Any],
    place: str,
    data: Path,
    undisturbed: Callable[[int], dayfly.Run],
    tmp_path: Path,
) -> None:
    """As scatter-reduce, bit for bit, also with a death in the middle."""
    run = dayfly.train(
        small.job(data),
        workers=3,
        run_dir=tmp_path,
        faults=[Fault(1, 5, place)],
        **small.SETTINGS,
        **settings,
    )
    assert run.result.restarts == 1
    assert small.bits(run) == small.bits(undisturbed(3))


def test_the_ring_trains_as_well(
    data: Path, undisturbed: Callable[[int], dayfly.Run], tmp_path: Path
) -> None:
    """In another order of summation, so nearly the same."""
    run = dayfly.train(
        small.job(data), workers=3, run_dir=tmp_path, collective="ring", **small.SETTINGS
    )
    expected = undisturbed(3).history[-1]["val_loss"]
    assert run.history[-1]["val_loss"] == pytest.approx(expected, abs=1e-2)


def test_a_run_goes_on_with_another_collective_than_k_reduce(data: Path, tmp_path: Path) -> None:
    first = dayfly.train(
        small.job(data, epochs=1),
        workers=2,
        collective="k-reduce",
        aggregators=1,
        run_dir=tmp_path,
        progress=False,
    )
    record = Record.load(first.directory)
    assert record.settings.aggregators == 1
    changed = record.next_life(None, collective="overlapped").settings
    assert (changed.collective, changed.aggregators) == ("overlapped", None)
    assert record.next_life(None, collective="k-reduce").settings.aggregators == 1
    assert record.next_life(None).settings == record.settings
