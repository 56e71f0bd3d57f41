"""The page of a run whose model was cut: bands by stage, passes, bubbles, the picture of a step."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dayfly.runs.report import detail, write_report
from dayfly.runs.report.detail import choose, tree
from dayfly.runs.report.pipeline import CutRun
from dayfly.runs.report.reading import RunFiles
from dayfly.runs.report.spans import Pass
from dayfly.runs.report.stages import Stages
from dayfly.runs.report.timeline import Timeline, timeline
from tests.report import made_up
from tests.report.browser import opened, said, with_script
from tests.report.pipelines import Made
from tests.report.test_page import HOSTILE, Elements, change, words

MADE = Made(replicas=2, transfer_ms=6.0, apply_ms=8.0)
BOTTLENECK = "Stage 1 (layers 4 to 8) is the slowest: 60 ms a micro-batch, 1.5 times the mean"


def words_of(directory: Path) -> str | None:
    found = CutRun.of(RunFiles.read(directory))
    return None if found is None else found.words()


def data_of(file: Path) -> dict[str, Any]:
    text = file.read_text().partition('id="data">')[2].partition("</script>")[0]
    found: dict[str, Any] = json.loads(text)
    return found


def passes_in(band: dict[str, Any]) -> list[tuple[str, int]]:
    """What a page carries of a band's passes: ("f" or "b", micro-batch), in order."""
    return [("fb"[number % 2], number // 2) for number in band["passes"][2::3]]


def is_shown_by_stage(directory: Path) -> None:
    """Asserts what holds for the page of every pipeline, made up or real, that fits into it."""
    run = RunFiles.read(directory)
    pipeline = CutRun.of(run)
    assert pipeline is not None
    stages = pipeline.stages
    file = write_report(directory)
    bands = data_of(file)["timeline"]["bands"]
    workers = range(stages.count * stages.replicas)
    assert [band["worker"] for band in bands] == list(workers)
    assert [band["name"] for band in bands] == [stages.name(worker) for worker in workers]
    for band in bands:
        assert {"forward", "backward"} <= band["spans"].keys()
        passes = Counter(passes_in(band))
        computed = sum(band["steps"][3::4])
        # The last batch of an epoch may be too small for all of them.
        assert {number for _, number in passes} == set(range(stages.micro_batches))
        assert max(passes.values()) == passes["f", 0] == computed
        assert all(passes["f", number] == passes["b", number] for _, number in passes)
    text = words(directory)
    for stage in range(stages.count):
        assert stages.layers(stage) in text
    assert f"{stages.ideal_bubble:.1%} is ideal" in text
    said_there = words_of(directory)
    assert said_there is not None
    assert said_there in text
    elements = opened(file)
    assert said(elements, "errors") == "0"
    assert f"of {len(bands)} workers" in said(elements, "drawn")
    assert elements.count('<svg class="drawing"') == 1


@pytest.mark.long
def test_a_made_up_pipeline(tmp_path: Path) -> None:
    directory = MADE.write(tmp_path / "run")
    is_shown_by_stage(directory)
    text = words(directory)
    for what in (
        "pipeline 3 stages 2 replicas, 4 micro-batches, fill-drain",
        "bubble 49.4% of a step; 33.3% is ideal",
        BOTTLENECK,
        "stage 1 4 to 8 2048 20.00 40.00 8.00 332.00 25.3% 18.00 66.00",
        "Step 2, the median one of those told whole: 332 ms.",
        "Close enough, passes have numbers: f3 is micro-batch 3 forward, b3 backward.",
    ):
        assert what in text, what
    groups = data_of(directory / "report.html")["timeline"]["groups"]
    assert groups == [
        [0, "stage 0: layers 0 to 3, 1024 MiB"],
        [2, "stage 1: layers 4 to 8, 2048 MiB"],
        [4, "stage 2: layers 9 to the last, 1024 MiB"],
    ]


def test_micro_batches_that_the_job_decides(tmp_path: Path) -> None:
    directory = MADE.write(tmp_path / "run")
    change(directory, settings={**MADE.settings, "micro_batches": None})
    assert "pipeline 3 stages 2 replicas, 4 micro-batches, fill-drain" in words(directory)


def test_the_section_has_names_for_all_that_is_in_it(tmp_path: Path) -> None:
    tags = Elements(write_report(MADE.write(tmp_path / "run")).read_text()).tags
    assert "pipeline-title" in {a.get("aria-labelledby") for tag, a in tags if tag == "section"}
    drawings = [a for tag, a in tags if tag == "svg" and a.get("role") == "img"]
    assert [a.get("aria-label") for a in drawings] == [
        "Workers",
        "Step 2 of all workers, drawn as time from left to right",
    ]
    assert sum(tag == "table" for tag, _ in tags) == sum(tag == "caption" for tag, _ in tags)


def test_before_a_step_was_told(tmp_path: Path) -> None:
    record = {"settings": MADE.settings, "status": "stopped"}
    directory = made_up.write(tmp_path / "run", [], {}, record=record)
    assert "Pipeline No step has been reported yet." in words(directory)
    assert words_of(directory) is None


def test_a_run_without_stages_has_no_words_of_them(tmp_path: Path) -> None:
    assert words_of(made_up.write(tmp_path / "run", *made_up.regular(2, 4))) is None


def test_what_settings_say_is_no_markup(tmp_path: Path) -> None:
    directory = MADE.write(tmp_path / "run")
    change(directory, settings={**MADE.settings, "catalogue": f"/{HOSTILE}"})
    elements = Elements(write_report(directory).read_text())
    assert sum(tag == "script" for tag, _ in elements.tags) == 2
    assert not {"img", "a"} & {tag for tag, _ in elements.tags}


def timeline_of(directory: Path) -> Timeline:
    run = RunFiles.read(directory)
    return timeline(run.events.coordinator, run.events.workers, running=False)


def test_steps_from_the_log_have_no_passes(tmp_path: Path) -> None:
    record = {**MADE.record(101.0, 0, 0), "computed": False}
    del record["spans"]["upload"]
    coordinator = [made_up.invoked(100.0, 0)]
    (band,) = made_up.timeline(coordinator, {0: [record]}, running=False).bands
    assert band.passes == ()
    assert "forward" not in band.spans
    assert band.spans["catch up"][0].end_s == pytest.approx(1.332)


def test_passes_keep_to_the_pages_budget(tmp_path: Path) -> None:
    times = timeline_of(MADE.write(tmp_path / "run", 40))
    assert times.bands[0].passes[0] == Pass("f", 0, 1.0, pytest.approx(1.01))
    assert len(times.bands[0].passes) == 40 * 8
    whole = choose(times)
    each = sum(len(b.steps) + len(b.passes) + sum(map(len, b.spans.values())) for b in times.bands)
    assert whole.total == each
    stages = Stages.of(made_up.settings_of(MADE.settings))
    page = tree(times, choose(times, spans=each // 4, shares=20_000), stages)
    died_s = next(one.end_s for one in times.bands[5].attempts if one.end == "death")
    windows = [[at * detail.UNIT_S for at in window] for window in page["windows"]]
    assert windows[0][0] == 0.0
    assert windows[-1][1] == pytest.approx(times.length_s, abs=detail.UNIT_S)
    assert any(start_s < died_s <= end_s for start_s, end_s in windows)
    drawn = 0
    for band, made in zip(times.bands, page["bands"], strict=True):
        inside = [p for p in band.passes if any(a <= p.start_s < b for a, b in windows)]
        assert 0 < len(inside) < len(band.passes)
        assert abs(len(passes_in(made)) - len(inside)) <= len(windows), "rounding at a border"
        drawn += len(passes_in(made)) + sum(len(spans) // 2 for spans in made["spans"].values())
    assert drawn <= each // 4


#: Notes what is written on the timeline from 1.30 to 1.75 s, and what is said at the pointer.
HAND = """
const written = [], tips = [], bands = document.getElementById("bands");
const { fillText } = CanvasRenderingContext2D.prototype;
figure.view.show(1.30, 1.75);
CanvasRenderingContext2D.prototype.fillText = function (words, ...where) {
  written.push(String(words));
  fillText.call(this, words, ...where);
};
figure.draw();
const tell = (time, place) => {
  const box = bands.getBoundingClientRect();
  bands.dispatchEvent(new PointerEvent("pointermove", { pointerType: "mouse",
    clientX: box.left + figure.x(time), clientY: box.top + figure.top(place) + 4 }));
  tips.push(document.getElementById("tip").innerText.split("\\n"));
};
tell(1.337, 0);
tell(1.585, 3);
tell(1.345, 4);
const before = figure.drawn;
for (const button of document.querySelectorAll("#legend button")) {
  if (button.textContent === "backward") button.click();
}
written.push("hidden");
figure.draw();
document.documentElement.dataset.seen = JSON.stringify({ written, tips });
"""


@pytest.mark.long
def test_numbers_in_passes_and_words_at_the_pointer(tmp_path: Path) -> None:
    file = write_report(MADE.write(tmp_path / "run"))
    text = file.read_text().replace("let figure, choice", "let choice")
    file.write_text(text.replace("function main() {", "let figure;\nfunction main() {"))
    elements = opened(with_script(file, HAND))
    assert said(elements, "errors") == "0"
    noted = json.loads(said(elements, "seen").replace("&quot;", '"'))
    written = noted["written"][: noted["written"].index("hidden")]
    assert "stage 1: layers 4 to 8, 2048 MiB" in written
    assert "stage 1, replica 1 (worker 3)" in written
    passes = [name for name in written if re.fullmatch(r"[fb]\d", name)]
    # Of the step from 1.332 s: all passes of each worker; and some of the one before and after.
    for kind in "fb":
        assert all(passes.count(f"{kind}{number}") >= 6 for number in range(4))
    first, slow, waits = noted["tips"]
    assert first[:2] == [
        "stage 0, replica 0 (worker 0), attempt 0",
        "forward of micro-batch 0: 10 ms from 1.3320 s",
    ]
    assert slow[1] == "backward of micro-batch 2: 40 ms from 1.5500 s"
    assert waits == ["stage 2, replica 0 (worker 4), attempt 0", "step 1, 332 ms"]
    hidden = noted["written"][noted["written"].index("hidden") :]
    assert "f0" in hidden
    assert "b0" not in hidden


@pytest.mark.parametrize(
    ("width", "dark"), [pytest.param(2000, False, marks=pytest.mark.slow), (400, True)]
)
@pytest.mark.long
def test_it_is_drawn_at_any_width(tmp_path: Path, width: int, dark: bool) -> None:
    file = write_report(MADE.write(tmp_path / "run"))
    elements = opened(file, width=width, dark=dark)
    assert said(elements, "errors") == "0"
    assert said(elements, "theme") == ("dark" if dark else "light")
