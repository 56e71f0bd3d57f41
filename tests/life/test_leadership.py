"""One coordinator leads a run at a time; one that lost its term changes nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dayfly.errors import RequestError
from dayfly.life import checkpoints, leadership
from dayfly.life.leadership import HEAD, Deposed, Leadership, LeaderWatch, leader_of
from dayfly.life.led_store import LedStore
from dayfly.wire.stores.base import Store, StoreUnreachable, Version
from dayfly.wire.stores.files import FileStore
from tests.channels.kit import eventually
from tests.store.places import s3

#: Long enough that nobody is taken for dead by chance, as a machine under load may be.
LONG_S = 300.0
SHORT_S = 0.3


@pytest.fixture(params=["files", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with ExitStack() as stack:
        if request.param == "s3":
            yield stack.enter_context(s3())
        else:
            yield FileStore(tmp_path / "store")


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each leader seems to be a process of another machine, of which nothing is known."""
    boots = iter(range(1000))
    monkeypatch.setattr(leadership, "_this_process", lambda: f"boot-{next(boots)}/pid:[1]/17.4")


def head(store: Store) -> dict[str, object]:
    tree: dict[str, object] = json.loads(store.get(HEAD))
    return tree


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> None:
    """No leader renews its term by itself, as if each was stopped right after it took it."""
    monkeypatch.setattr(Leadership, "_keep", lambda self: None)


def test_terms_count_and_one_that_was_released_is_followed_at_once(store: Store) -> None:
    with Leadership.take(store, lease_s=LONG_S) as first:
        assert (first.term, head(store)["released"]) == (1, False)
        assert leader_of(store) is not None
    assert leader_of(store) is None
    with Leadership.take(store, lease_s=LONG_S) as second:
        assert second.term == 2
        second.check(renew=True)


@pytest.mark.usefixtures("elsewhere")
def test_who_renews_its_term_keeps_it(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    waiting: list[str] = []

    def note(text: str) -> None:
        waiting.append(text)
        eventually(lambda: head(store)["renewals"] != seen, "its thread renews the term")

    with Leadership.take(store, lease_s=1.0) as first:
        seen = head(store)["renewals"]
        with pytest.raises(RequestError, match=r"is being run by process \d+ on .*: stop it by"):
            Leadership.take(store, note=note)
        first.check(renew=True)
        assert len(waiting) == 1, waiting


def test_a_process_that_is_gone_is_followed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path)
    first = Leadership.take(store, lease_s=LONG_S)
    gone = {**head(store), "process": str(head(store)["process"]).rpartition(".")[0] + ".1"}
    first.close()
    store.put(HEAD, json.dumps({**gone, "released": False}).encode())
    with Leadership.take(store, lease_s=LONG_S) as second:
        assert second.term == 2


@pytest.mark.usefixtures("elsewhere", "paused")
def test_a_paused_leader_neither_commits_nor_deletes(store: Store, tmp_path: Path) -> None:
    """It may be paused anywhere: what it does next is refused, whatever its own clock says."""
    first = Leadership.take(store, lease_s=SHORT_S)
    old = LedStore(store, first, FileStore(tmp_path / "old"))
    for name in ("run.json", "history.json"):
        old.put(name, b'{"by": 1}')
    committed = checkpoints.commit(old, 0, checkpoints.write_stages(old, 0, [({}, {})]))

    with Leadership.take(store, lease_s=LONG_S) as second:
        new = LedStore(store, second, FileStore(tmp_path / "new"))
        # As if it had looked at its clock just before it was paused.
        first._renewed_s = leadership._now_s()
        for act in (
            lambda: old.put("run.json", b'{"by": 1}'),
            lambda: old.put("history.json", b'{"by": 1}'),
            lambda: old.put("bill.json", b'{"by": 1}'),
            lambda: checkpoints.commit(old, 7, committed.parts),
            lambda: old.delete(part.object for part in committed.parts),
            lambda: old.clear("checkpoint"),
        ):
            first._lost = None
            with pytest.raises(Deposed, match=r"term 2\) by now"):
                act()
        assert checkpoints.latest(store) == committed
        assert checkpoints.read(store, committed) == ({}, {})
        new.put("bill.json", b'{"by": 2}')
        for name in ("run.json", "history.json"):
            assert json.loads(store.get(name)) == {"by": 1}
        assert json.loads(store.get("bill.json")) == {"by": 2}
    first.close()
    assert head(store)["term"] == 2


@pytest.mark.usefixtures("elsewhere", "paused")
def test_what_an_earlier_leader_was_just_writing_is_overwritten(
    store: Store, tmp_path: Path
) -> None:
    """A new object, put while the new leader took over: it cannot know its version."""
    with Leadership.take(store, lease_s=LONG_S) as leader:
        led = LedStore(store, leader, FileStore(tmp_path / "copy"))
        store.put("history.json", b'{"by": "an earlier one"}')
        led.put("history.json", b'{"by": "this"}')
        assert json.loads(store.get("history.json")) == {"by": "this"}
        led.put("history.json", b'{"by": "this, later"}')
        assert json.loads(store.get("history.json")) == {"by": "this, later"}
        assert (tmp_path / "copy" / "history.json").read_bytes() == b'{"by": "this, later"}'


def test_the_thread_ends_with_the_term(tmp_path: Path) -> None:
    before = set(threading.enumerate())  # those of other tests may end at any time
    with Leadership.take(FileStore(tmp_path)) as leader:
        leader.check()
        assert set(threading.enumerate()) - before
    leader.close()
    assert not set(threading.enumerate()) - before


def test_a_damaged_head_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / HEAD).write_text('{"term": 0}')
    with pytest.raises(RequestError, match=f"{HEAD}.*make sure that no coordinator runs it"):
        Leadership.take(FileStore(tmp_path))


@pytest.mark.usefixtures("paused")
def test_a_renewal_whose_answer_was_lost_deposes_nobody(tmp_path: Path) -> None:
    class Deaf(FileStore):
        def put_if(self, *put: object) -> Version | None:  # type: ignore[override]
            super().put_if(*put)  # type: ignore[arg-type]
            raise StoreUnreachable("no answer")

    store = FileStore(tmp_path)
    with Leadership.take(store, lease_s=LONG_S) as leader:
        leader._store = Deaf(tmp_path)
        with pytest.raises(StoreUnreachable):
            leader.check(renew=True)
        leader._store = store
        leader.check(renew=True)
        assert head(store)["renewals"] == 2, "it was put once more: the first may be long ago"


@pytest.mark.usefixtures("elsewhere", "paused")
def test_who_looks_on_takes_a_leader_of_another_machine_for_lost_after_a_lease(
    store: Store,
) -> None:
    now_s = 0.0
    watch = LeaderWatch(store, lambda: now_s)
    assert watch.look() is None
    with Leadership.take(store, lease_s=LONG_S) as leader:
        assert watch.look() is not None
        now_s = LONG_S
        leader.check(renew=True)
        assert watch.look() is not None, "it was renewed"
        now_s += LONG_S + 1
        assert watch.look() is None
        leader.check(renew=True)
        assert watch.look() is not None, "it was only paused"
