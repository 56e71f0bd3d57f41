"""The page: what it says of runs in every state; it needs nothing else, and it is safe."""

from __future__ import annotations

import fcntl
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from dayfly.errors import RequestError
from dayfly.runs.report import write_report
from dayfly.runs.report.markup import script_json, shown, spoken, table
from tests.report import made_up

EPOCHS = [
    {"epoch": 1, "train_loss": 2.0, "val_loss": 1.5, "val_accuracy": 0.5},
    {"epoch": 2, "train_loss": 1.0, "val_loss": 0.75, "val_accuracy": 0.875},
]
BILL = {
    "cost_usd": 0.003,
    "price_list": "aws-lambda",
    "billed_s": 4.5,
    "compute_usd": 0.002,
    "requests_usd": 0.001,
    "invocations": [
        {"function": f"worker-{n}", "billed_ms": 1500, "gb_s": 2.5, "cost_usd": 0.001}
        for n in (0, 10, 2)
    ],
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Four workers, twenty steps, one death."""
    return made_up.write(
        tmp_path / "run",
        *made_up.regular(4, 20),
        record={"result": {"steps": 20, "step_s": 0.1}, "wall_s": 3.5, "generation": 0},
        history={"epochs": EPOCHS, "step_loss": [1.0] * 20, "redone_steps": 1},
        bill=BILL,
    )


class Elements(HTMLParser):
    """Tags, their attributes, and the texts between them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def change(run: Path, **fields: Any) -> None:
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | fields))


def words(run: Path) -> str:
    """The page's text, without the markup and the script."""
    page = write_report(run).read_text().partition('<script type="application/json"')[0]
    texts = Elements(re.sub(r"<style>.*?</style>", "", page, flags=re.S)).texts
    return " ".join(" ".join(texts).split())


def test_where_the_seconds_went_is_on_the_page(tmp_path: Path) -> None:
    coordinator, workers = made_up.regular(2, 8, deaths=False)
    assert "start-up" not in words(made_up.write(tmp_path / "older", coordinator, workers))
    asked_at = coordinator[0]["at"] - 2.5
    coordinator.insert(0, {"kind": "begun", "at": coordinator[0]["at"], "asked_at": asked_at})
    ended = max(one["began"] + one["step_s"] for one in workers[0] if one["kind"] == "step")
    coordinator.append({"kind": "over", "at": ended + 1.75})
    text = words(made_up.write(tmp_path / "run", coordinator, workers))
    found = re.search(
        r": start-up time ([0-9.]+) s, training time ([0-9.]+) s, end ([0-9.]+) s", text
    )
    assert found, text
    start_s, training_s, end_s = map(float, found.groups())
    assert start_s > 2.5
    assert end_s == 1.8
    whole_s = ended + 1.75 - asked_at
    assert start_s + training_s + end_s == pytest.approx(whole_s, abs=0.16), "each is rounded"


def test_a_run_that_is_done(run: Path) -> None:
    file = write_report(run)
    assert file == run / "report.html"
    text = words(run)
    for said in (
        "made-up done",
        "accuracy 87.5% validation",
        "steps 20 100.0 ms each",
        "deaths 1 0 hand-overs",
        "cost $0.003000 as on aws-lambda",
        "traffic 10.0 MB up; 8.0 MB down",
        "compute $0.002000 requests $0.001000 all $0.003000",
        "worker-0 1 1 500 2.5 $0.001000 worker-2",
        "worker 3 4.0 2.0 100 all 10.0 8.0 400",
        "worker 1 0 0 0.01 0.200 1.99 death: ValueError: no",
        "redone steps 1",
        "All checkpoints",
    ):
        assert said in text
    assert "Why it failed" not in text
    assert [path.name for path in run.glob("*report*")] == ["report.html"]


def test_rollbacks_of_all_workers(tmp_path: Path) -> None:
    coordinator, workers = made_up.regular(2, 20)
    back = {"kind": "rolled back", "from_step": 10, "to_step": 8, "redone_steps": 2}
    coordinator.append({**back, "at": made_up.BEGAN + 2.5, "cause": "worker 1 raised <E>"})
    record = {"generation": 2, "rollbacks": 1}
    text = words(made_up.write(tmp_path / "run", coordinator, workers, record=record))
    assert "deaths 1 0 hand-overs, 1 rollback" in text
    assert "All rollbacks" in text
    assert "2.50 10 8 2 worker 1 raised <E>" in text
    assert "lives 2" in text, "a rollback begins no life"


def test_the_same_files_make_the_same_page(run: Path, tmp_path: Path) -> None:
    first = write_report(run).read_bytes()
    other = write_report(run, tmp_path / "other.html")
    assert other == tmp_path / "other.html"
    assert other.read_bytes() == first


def test_the_page_needs_nothing_else(run: Path) -> None:
    page = write_report(run).read_text()
    elements = Elements(page)
    assert not {"link", "img", "iframe", "object", "base"} & {tag for tag, _ in elements.tags}
    assert not any({"src", "href"} & attributes.keys() for _, attributes in elements.tags)
    policy = next(a["content"] for tag, a in elements.tags if a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    urls = set(re.findall(r"https?://[^\"'\s)]+", page))
    assert urls == {"http://www.w3.org/2000/svg"}, "a name, which is never fetched"


def test_headings_tables_and_controls_have_names(run: Path) -> None:
    tags = Elements(write_report(run).read_text()).tags
    assert [tag for tag, _ in tags if tag == "h1"] == ["h1"]
    assert sum(tag == "table" for tag, _ in tags) == sum(tag == "caption" for tag, _ in tags) > 3
    assert all("scope" in a for tag, a in tags if tag == "th")
    identities = {a["id"] for _, a in tags if "id" in a}
    labels = {a["aria-labelledby"] for tag, a in tags if tag == "section"}
    assert len(labels) == 5
    assert labels <= identities


HOSTILE = "</script><script>alert('1')</script><!--<img src=x onerror=alert(2)>&amp;\"'\u2028$title"


def test_nothing_that_comes_from_a_run_is_markup(tmp_path: Path) -> None:
    coordinator, workers = made_up.regular(2, 8)
    for event in coordinator:
        if event["kind"] == "ended" and event["death"]:
            event["error"] = HOSTILE
    workers[0][0]["spans"][HOSTILE] = [[0.0, 5.0]]
    run = made_up.write(
        tmp_path / "run",
        coordinator,
        workers,
        record={
            "status": "failed",
            "error": HOSTILE,
            "settings": {"catalogue": f"/{HOSTILE}"},
            "made_with": {HOSTILE: HOSTILE},
        },
        history={"epochs": [{"epoch": 0, "train_loss": 1.0, HOSTILE: 0.5}], "step_loss": [1.0]},
        bill={
            "cost_usd": 1.0,
            "price_list": HOSTILE,
            HOSTILE: HOSTILE,
            "by_kind": {HOSTILE: 1.0},
            "functions": [{"function": HOSTILE, HOSTILE: HOSTILE, "cost_usd": 1.0}],
            "notes": [HOSTILE],
        },
    )
    page = write_report(run).read_text()
    elements = Elements(page)
    assert sum(tag == "script" for tag, _ in elements.tags) == 2
    assert not {"img", "a"} & {tag for tag, _ in elements.tags}
    names = {name for _, attributes in elements.tags for name in attributes}
    assert not [name for name in names if name.startswith("on")]
    assert page.count("alert(2)>") == 0
    assert page.count("</script>") == 2
    data = page.partition('id="data">')[2].partition("</script>")[0]
    tree = json.loads(data)
    assert tree["figures"][-1]["title"] == HOSTILE.replace("_", " ")
    assert HOSTILE in tree["timeline"]["bands"][0]["spans"]
    assert tree["timeline"]["bands"][1]["attempts"][0][6] == HOSTILE


def test_json_in_a_script_ends_neither_it_nor_begins_a_comment() -> None:
    text = script_json({"<!--</ScRiPt>&": ["]]>"]})
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"<!--</ScRiPt>&": ["]]>"]}


def test_a_run_that_still_goes_on(run: Path) -> None:
    change(run, status="running", result=None)
    (run / "events" / "worker-0.jsonl").open("a").write(
        json.dumps(made_up.epoch(made_up.BEGAN + 3, epoch=0, train_loss=4.0, val_loss=3.25)) + "\n"
    )
    with (run / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        text = words(run)
    assert "made-up running Running, as of 1970-01-12 13:46:44 UTC" in text
    assert "validation loss 3.25 last epoch" in text, "not the history, which is an earlier life's"
    assert "steps 20 so far" in text
    assert "The bill is made when the run ends." in text


def test_a_run_whose_coordinator_was_killed(run: Path) -> None:
    change(run, status="running", result=None)
    (run / "lock").write_text("123\n")
    assert "made-up interrupted Interrupted: its coordinator is gone" in words(run)


def test_a_run_that_has_only_just_begun(tmp_path: Path) -> None:
    run = made_up.write(tmp_path / "run", [], {}, record={"status": "running"})
    text = words(run)
    assert "No step has been reported yet." in text
    assert "None was reported." in text


def test_lines_that_a_kill_cut_are_passed_over_and_counted(run: Path) -> None:
    before = words(run)
    assert "cut short" not in before
    with (run / "events" / "worker-0.jsonl").open("ab") as file:
        file.write(b'{"at": 1000003.5, "kind": "step", "st\xc3')
    after = words(run)
    assert "event lines cut short, passed over 1" in after
    assert after.replace("event lines cut short, passed over 1 ", "") == before


@pytest.mark.parametrize("line", ['{"at": 10000', "[1, 2]", '"kind"', "{}", '{"at": "now"}', ""])
def test_a_line_that_is_no_record_is_named(run: Path, line: str) -> None:
    file = run / "events" / "coordinator.jsonl"
    number = len(file.read_text().splitlines()) + 1
    with file.open("a") as events:
        events.write(f"{line}\n")
    with pytest.raises(RequestError, match=rf"coordinator\.jsonl, line {number}\b.*: put back"):
        write_report(run)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "holds no run: it has no run.json"),
        ('{"run_id": ', "run.json is no JSON"),
        ("[]", "run.json holds no JSON object, but a list: put back the file"),
    ],
)
def test_a_directory_that_is_no_run(tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(RequestError, match=re.escape(said)):
        write_report(tmp_path)


def test_a_page_that_cannot_be_written(run: Path, tmp_path: Path) -> None:
    (run / "report.html").mkdir()
    with pytest.raises(RequestError, match=r"Is a directory; name another file with --output"):
        write_report(run)
    assert not list(run.glob(".*")), "nothing is left of the attempt"
    with pytest.raises(RequestError, match=r"cannot be written: No such file"):
        write_report(run, tmp_path / "nowhere" / "page.html")


def test_a_long_table_says_what_it_leaves_out(tmp_path: Path) -> None:
    rows = [
        {"function": f"worker-{n}", "billed_ms": 1, "gb_s": 1.0, "cost_usd": 0.0}
        for n in range(700)
    ]
    run = made_up.write(
        tmp_path / "run",
        [],
        {},
        history={},
        bill={"cost_usd": 0.0, "price_list": "made up", "invocations": rows},
    )
    assert "By invocation; the first 500 of 700, the others are in its files" in words(run)


def test_predictions_stand_beside_what_was_measured(run: Path) -> None:
    assert "predicted" not in words(run)
    result = {"run_id": "made-up", "status": "done", "steps": 20, "step_s": 0.1, "cost_usd": 2.0}
    change(run, result=result | {"predicted_step_s": 0.25})
    text = words(run)
    assert "step (s) 0.1 predicted step (s) 0.25" in text
    assert "predicted cost" not in text


def test_values_for_people() -> None:
    space = "\N{NARROW NO-BREAK SPACE}"
    assert shown(None) == "\N{EN DASH}"
    assert shown(True) == "yes"
    assert shown(1234567) == f"1{space}234{space}567"
    assert shown(0.00123456) == "0.001235"
    assert shown(123456.7) == f"123{space}457"
    assert [spoken(name) for name in ("billed_ms", "gb_s", "memory_mib", "val_loss")] == [
        "billed (ms)",
        "GB-s",
        "memory (MiB)",
        "val loss",
    ]


def test_a_column_of_numbers_is_aligned_right() -> None:
    made = table(
        "T", ("name", "count", "word"), [("a", 1, "x"), ("b", 2, "y")], foot=("all", 3, "")
    )
    assert '<th scope="row">a</th><td class="number">1</td><td>x</td>' in made
    assert '<tfoot><tr><th scope="row">all</th><td class="number">3</td><td></td></tr>' in made


def test_a_scripts_run_is_shown_by_its_lives(tmp_path: Path) -> None:
    text = words(made_up.script(tmp_path / "run"))
    for said in (
        "lives 4 of all workers together",
        "restarts 1 after deaths; 2 after a lifetime or by --resume",
        "1 0.00 3.50 worker 1 raised ValueError: no",
        "2 4.00 3.50 worker 0 came to the end of its lifetime",
        "3 8.00 3.50 ended; --resume went on",
        "4 12.00 3.50 done",
        "worker 1 1 0.00 0.500 3.50 death: ValueError: no",
        "worker cold start (s) script (s) worker 0 2.00 12.00",
        "script /there/train.py arguments --epochs 3",
        "cost $0.003000 as on aws-lambda",
        "all 8.0 16.0 80",
    ):
        assert said in text, said
    for strange in ("step", "Curves", "samples", "rollback", "checkpoint", "hand", "l for lanes"):
        assert strange not in text, strange
    assert "store requests" not in text


def test_a_script_that_was_stopped_or_lost_says_so_of_its_last_life(tmp_path: Path) -> None:
    directory = made_up.script(tmp_path / "run")
    change(directory, status="stopped")
    assert "4 12.00 3.50 stopped" in words(directory)
    change(directory, status="running")  # and nobody holds its lock
    assert "4 12.00 3.50 lost with the coordinator" in words(directory)
