"""What happens while a store does not answer: pauses, for how long, and what is said then."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from dayfly.errors import WireError
from dayfly.wire import outages
from dayfly.wire.outages import Cause, Outage, Retry, Trouble

pytestmark = pytest.mark.quick


class Clock:
    """Moves when it is told to, and while a store is left alone."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()

    def sleep(pause_s: float) -> None:
        clock.now_s += pause_s

    monkeypatch.setattr(outages, "time", SimpleNamespace(sleep=sleep, monotonic=clock))
    monkeypatch.setattr(outages, "random", SimpleNamespace(random=lambda: 0.0))
    return clock


def trouble_of(error: Exception) -> Trouble | None:
    """Of a store whose errors are of the system."""
    if isinstance(error, TimeoutError):
        return Trouble("it does not answer", passing=True)
    return Trouble("it refuses", passing=False) if isinstance(error, OSError) else None


def retry(most_s: float = 60.0) -> Retry:
    """Of a store at `there`."""

    def error(text: str, cause: Cause) -> WireError:
        return WireError(f"{text} ({cause.value})")

    return Retry(trouble_of, error, " at there", most_s)


def failing(error: Exception, tries: list[float], clock: Clock) -> Callable[[], None]:
    """A request that fails always; when it was made goes to `tries`."""

    def act() -> None:
        tries.append(clock.now_s)
        raise error

    return act


def test_an_outage_lasts_until_an_answer(clock: Clock) -> None:
    outage = Outage(60.0)
    assert not outage.too_long()
    clock.now_s += 60.0
    assert not outage.too_long()
    clock.now_s += 0.5
    assert outage.too_long()
    outage.answered()
    assert not outage.too_long()
    clock.now_s += 59.0
    assert not outage.too_long()


def test_a_store_that_does_not_answer_is_asked_ever_more_slowly_and_given_up(clock: Clock) -> None:
    tries: list[float] = []
    with pytest.raises(WireError) as failed:
        retry(most_s=4.0).insist("x", failing(TimeoutError(), tries, clock))
    assert str(failed.value) == (
        "x at there has not answered for 4 s: it does not answer (unreachable)"
    )
    assert failed.value.__suppress_context__, "its own words may hold keys"
    assert tries == pytest.approx([0.0, 0.05, 0.15, 0.35, 0.75, 1.55, 3.15, 5.15])


def test_a_request_may_have_less_time_than_the_store(clock: Clock) -> None:
    tries: list[float] = []
    with pytest.raises(WireError, match=r"for 0\.1 s"):
        retry().insist("x", failing(TimeoutError(), tries, clock), 0.1)
    assert tries == pytest.approx([0.0, 0.05, 0.15])


def test_what_will_not_pass_is_not_tried_again(clock: Clock) -> None:
    tries: list[float] = []
    with pytest.raises(WireError, match=r"^x at there: it refuses"):
        retry().insist("x", failing(PermissionError(), tries, clock))
    with pytest.raises(KeyError):
        retry().insist("x", failing(KeyError("a bug"), tries, clock))
    with pytest.raises(WireError, match=r"^damaged$"):
        retry().insist("x", failing(WireError("damaged"), tries, clock))
    assert tries == [0.0] * 3


def test_an_answer_ends_the_outage_of_waits(clock: Clock) -> None:
    asked = retry(most_s=1.0)
    asked.trouble("a wait", TimeoutError(), asked.outage)
    clock.now_s += 5.0
    assert asked.insist("x", lambda: 3) == 3
    asked.trouble("a wait", TimeoutError(), asked.outage)
    clock.now_s += 1.5
    with pytest.raises(WireError, match=r"^a wait at there has not answered for 1 s"):
        asked.trouble("a wait", TimeoutError(), asked.outage)
