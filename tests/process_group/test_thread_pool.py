"""There is a thread for all that is under way, and none afterwards."""

from __future__ import annotations

import threading

import pytest

from dayfly.wire.channels.conformance import SOON_S
from dayfly.wire.process_group.p2p_context import ThreadPool
from tests.channels.kit import eventually

pytestmark = pytest.mark.long


def alive(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


def test_all_work_is_under_way_at_once() -> None:
    """Each waits for all others: with a thread less, none would come to its end."""
    with ThreadPool("crew-of-test") as crew:
        for count in (40, 3, 40):
            meet = threading.Barrier(count)
            calls = [crew.submit(lambda meet=meet: meet.wait(SOON_S)) for _ in range(count)]
            for call in calls:
                call.result(SOON_S)
            assert crew.settled(SOON_S)
            eventually(lambda: alive("crew-of-test") <= 8, "the others end")
    assert alive("crew-of-test") == 0


def test_threads_are_used_again() -> None:
    with ThreadPool("crew-of-test") as crew:
        idents = set()
        for _ in range(20):
            crew.submit(lambda: idents.add(threading.get_ident())).result(SOON_S)
            assert crew.settled(SOON_S)
        assert len(idents) == 1


def test_errors_are_told_to_who_waits_and_harm_nobody_else() -> None:
    with ThreadPool("crew-of-test") as crew:

        def fail() -> None:
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            crew.submit(fail).result(SOON_S)
        crew.submit(lambda: None).result(SOON_S)
        held = threading.Event()
        crew.submit(lambda: held.wait(SOON_S) and None)  # type: ignore[func-returns-value]
        assert not crew.settled(0.01)
        held.set()
        assert crew.settled(SOON_S)
    with pytest.raises(RuntimeError, match="crew-of-test is closed"):
        crew.submit(lambda: None)
