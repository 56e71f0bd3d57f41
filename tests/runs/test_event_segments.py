"""Events in a run's store: one history in numbered objects, read on from a position."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dayfly.errors import RequestError
from dayfly.life.leadership import Deposed
from dayfly.runs.event_segments import EVERY_S, EventSegments, as_files
from dayfly.runs.following import DirectoryEvents, StoreEvents
from dayfly.runs.steering import KeptRun
from dayfly.specs.events import Begun, EpochTold
from dayfly.wire.stores.base import Buffer, StoreUnreachable, Version
from dayfly.wire.stores.files import FileStore


def record(kind: str, **fields: Any) -> dict[str, Any]:
    return {"at": 1.0, "kind": kind, **fields}


EPOCH = record("epoch", record={"epoch": 1}, spans={})


def names(store: FileStore) -> list[str]:
    return [info.name for info in store.list("events")]


def test_what_can_wait_goes_with_what_is_urgent_or_once_it_is_time(tmp_path: Path) -> None:
    clock = iter([0.0, 1.0, 2.0, 3.0, 4.0, 5.0 + EVERY_S, 6.0 + EVERY_S])
    store = FileStore(tmp_path)
    segments = EventSegments(store, lambda: next(clock))
    segments.add("worker-0", [EPOCH])
    assert names(store) == []
    segments.add("coordinator", [record("checkpoint", step=4)])
    assert names(store) == ["events/000000"]
    segments.add("worker-1", [EPOCH])
    assert names(store) == ["events/000000"]
    segments.add("worker-1", [EPOCH])
    assert names(store) == ["events/000000", "events/000001"]
    as_files(store, tmp_path / "copy")
    read = {file.stem: file.read_text().splitlines() for file in (tmp_path / "copy").iterdir()}
    assert {name: [json.loads(line) for line in lines] for name, lines in read.items()} == {
        "worker-0": [EPOCH],
        "coordinator": [record("checkpoint", step=4)],
        "worker-1": [EPOCH, EPOCH],
    }


def test_the_last_epoch_is_found_by_reading_back(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    run = KeptRun("run", store, None)
    assert run.last_epoch() is None
    segments = EventSegments(store)
    for number in (1, 2, 3):
        told = record("epoch", record={"epoch": number}, spans={})
        segments.add("worker-0", [told, record("caught up", step=0)])
        segments.add("coordinator", [record("checkpoint", step=4)])
    last = run.last_epoch()
    assert last is not None
    assert last.epoch == 3
    store.put("events/000000", b"no record")
    assert run.last_epoch() == last, "earlier segments are not read"


def test_the_next_life_goes_on_and_the_one_before_is_refused(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    first = EventSegments(store)
    first.add("coordinator", [record("begun", asked_at=1.0)])
    second = EventSegments(store)
    second.add("coordinator", [record("begun", asked_at=2.0)])
    with pytest.raises(Deposed, match="events/000001"):
        first.add("coordinator", [record("over")])
    events = StoreEvents(store)
    assert [one.asked_at for _, one in events.look() if isinstance(one, Begun)] == [1.0, 2.0]
    second.add("coordinator", [record("over")])
    assert len(list(events.look())) == 1, "from the position on"


def test_a_put_whose_answer_was_lost_is_known_again(tmp_path: Path) -> None:
    class Deaf(FileStore):
        answers = iter([False, True, True])

        def put_new(self, name: str, data: Buffer) -> Version | None:
            version = super().put_new(name, data)
            if not next(self.answers):
                raise StoreUnreachable("no answer")
            return version

    segments = EventSegments(Deaf(tmp_path))
    with pytest.raises(StoreUnreachable):
        segments.add("coordinator", [record("begun", asked_at=1.0)])
    segments.add("coordinator", [record("over", run_s=1.0, peak_mib=1)])
    assert names(FileStore(tmp_path)) == ["events/000000", "events/000001"]
    told = [event.kind for _, event in StoreEvents(FileStore(tmp_path)).look()]
    assert told == ["begun", "over"], "each once"


@pytest.mark.parametrize("line", ["", "[]", '["../evil", {}]', '["worker-0", 7]', "\xff", "[1, 2]"])
def test_what_is_no_record_is_refused_by_name(tmp_path: Path, line: str) -> None:
    store = FileStore(tmp_path)
    store.put("events/000000", b'["worker-0", {}]\n' + line.encode("latin-1") + b"\n")
    with pytest.raises(RequestError, match="events/000000, line 2, is no record"):
        as_files(store, tmp_path / "copy")


def test_a_line_that_is_still_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    events, file = DirectoryEvents(tmp_path), tmp_path / "worker-0.jsonl"
    line = json.dumps(EPOCH) + "\n"
    file.write_text(line + line[:20])
    assert [type(one) for _, one in events.look()] == [EpochTold]
    assert list(events.look()) == []
    file.write_text(line + line)
    assert len(list(events.look())) == 1


def test_what_somebody_else_put_there_is_passed_over(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.put("events/readme.txt", b"no record")
    segments = EventSegments(store)
    segments.add("coordinator", [record("begun", asked_at=1.0)])
    assert names(store) == ["events/000000", "events/readme.txt"]
    assert [type(event) for _, event in StoreEvents(store).look()] == [Begun]
