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
    with ThreadPool("pool-of-test") as pool:
        for count in (40, 3, 40):
            meet = threading.Barrier(count)
            calls = [pool.submit(lambda meet=meet: meet.wait(SOON_S)) for _ in range(count)]
            for call in calls:
                call.result(SOON_S)
            assert pool.settled(SOON_S)
            eventually(lambda: alive("pool-of-test") <= 8, "the others end")
    assert alive("pool-of-test") == 0


def test_threads_are_used_again() -> None:
    with ThreadPool("pool-of-test") as pool:
        idents = set()
        for _ in range(20):
            pool.submit(lambda: idents.add(threading.get_ident())).result(SOON_S)
            assert pool.settled(SOON_S)
        assert len(idents) == 1


def test_errors_are_told_to_who_waits_and_harm_nobody_else() -> None:
    with ThreadPool("pool-of-test") as pool:

        def fail() -> None:
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            pool.submit(fail).result(SOON_S)
        pool.submit(lambda: None).result(SOON_S)
        held = threading.Event()
        pool.submit(lambda: held.wait(SOON_S) and None)  # type: ignore[func-returns-value]
        assert not pool.settled(0.01)
        held.set()
        assert pool.settled(SOON_S)
    with pytest.raises(RuntimeError, match="pool-of-test is closed"):
        pool.submit(lambda: None)
