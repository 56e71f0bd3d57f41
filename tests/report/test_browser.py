"""The page in a real browser: drawn without errors, in both themes, and what moving in it does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dayfly.runs.report import detail, page, reading, write_report
from tests.report import made_up
from tests.report.browser import opened, said, with_script
from tests.report.test_page import HOSTILE

pytestmark = pytest.mark.long

HISTORY = {
    "epochs": [{"epoch": n, "train_loss": 2.0 - n, "val_loss": None} for n in range(2)],
    "step_loss": [2.0, None, 1.0] * 50,
}


def run(directory: Path, workers: int, steps: int) -> Path:
    return made_up.write(directory, *made_up.regular(workers, steps), history=HISTORY)


@pytest.mark.parametrize(
    ("workers", "width", "dark"),
    [
        pytest.param(4, 1200, False, marks=pytest.mark.slow),
        (4, 400, True),
        pytest.param(64, 2500, True, marks=pytest.mark.slow),
    ],
)
def test_all_is_drawn_without_an_error(
    tmp_path: Path, workers: int, width: int, dark: bool
) -> None:
    file = write_report(run(tmp_path / "run", workers, 20))
    elements = opened(file, width=width, dark=dark)
    assert said(elements, "errors") == "0"
    # Of a worker: 20 steps of 5 kinds, one of them twice, but for waits that touch; its start.
    spans = re.fullmatch(rf"(\d+) spans of {workers} workers, 2 figures", said(elements, "drawn"))
    assert spans is not None, said(elements, "drawn")
    assert int(spans.group(1)) == drawn_spans(file)
    assert said(elements, "theme") == ("dark" if dark else "light")
    assert elements.count("<svg viewBox=") == 2
    assert elements.count('class="chart"') == 2
    assert 'id="trouble" role="alert" hidden' in elements


def drawn_spans(file: Path) -> int:
    """How many spans the page carries."""
    data = file.read_text().partition('id="data">')[2].partition("</script>")[0]
    bands = json.loads(data)["timeline"]["bands"]
    return sum(len(band["spans"][kind]) // 2 for band in bands for kind in band["spans"])


@pytest.mark.slow
def test_a_run_too_long_for_a_page_is_drawn_by_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = detail.choose
    monkeypatch.setattr(detail, "choose", lambda times: choose(times, spans=300, shares=2000))
    file = write_report(run(tmp_path / "run", 4, 60))
    assert "Too many for a page" in file.read_text()
    elements = opened(file)
    assert said(elements, "errors") == "0"
    assert said(elements, "drawn").endswith("spans of 4 workers, 2 figures")


def test_hostile_texts_are_shown_and_not_run(tmp_path: Path) -> None:
    coordinator, workers = made_up.regular(2, 8)
    for event in coordinator:
        if event["kind"] == "ended" and event["death"]:
            event["error"] = HOSTILE
    workers[0][0]["spans"][HOSTILE] = [[0.0, 50.0]]
    directory = made_up.write(
        tmp_path / "run",
        coordinator,
        workers,
        record={"error": HOSTILE},
        history={"epochs": [{"epoch": 0, HOSTILE: 0.5}], "step_loss": [1.0]},
    )
    elements = opened(write_report(directory))
    assert said(elements, "errors") == "0"
    assert "<img" not in elements


@pytest.mark.parametrize("view", ["", pytest.param("lanes=1", marks=pytest.mark.slow)])
def test_a_scripts_run_is_drawn_in_one_lane(view: str, tmp_path: Path) -> None:
    file = write_report(made_up.script(tmp_path / "run"))
    elements = opened(file, view=view)
    assert said(elements, "errors") == "0"
    assert said(elements, "drawn") == "16 spans of 2 workers, 0 figures"
    (button,) = re.findall(r'<button[^>]*data-do="lanes"[^>]*>', elements)
    assert " hidden" in button
    assert 'aria-pressed="false"' in button


def test_a_run_without_any_event_is_a_page_all_the_same(tmp_path: Path) -> None:
    file = write_report(made_up.write(tmp_path / "run", [], {}))
    elements = opened(file)
    assert said(elements, "errors") == "0"
    assert said(elements, "drawn") == "0 spans of 0 workers, 0 figures"


#: Does things to the timeline and notes what is seen after each, as [from, to] in seconds.
HAND = """
const seen = [], tips = [], bands = document.getElementById("bands");
const left = 84, across = bands.clientWidth - left - 1;
const note = () => seen.push([figure.view.from, figure.view.to]);
const at = (kind, type, x, y, more = {}) => {
  const box = bands.getBoundingClientRect();
  bands.dispatchEvent(new type(kind, { bubbles: true, cancelable: true, pointerId: 1,
    clientX: box.left + x, clientY: box.top + y, ...more }));
};
const key = (name) => at("keydown", KeyboardEvent, 0, 0, { key: name });
bands.setPointerCapture = () => {};
note();
at("wheel", WheelEvent, left + across / 2, 20, { deltaY: -300 }); note();
at("wheel", WheelEvent, left + across / 2, 20, { deltaY: 100, shiftKey: true }); note();
at("pointerdown", PointerEvent, left + 300, 20);
at("pointermove", PointerEvent, left + 200, 20, { buttons: 1 });
at("pointerup", PointerEvent, left + 200, 20); note();
key("+"); note();
key("-"); note();
key("ArrowLeft"); note();
at("dblclick", MouseEvent, left + 300, 20); note();
key("l");
document.documentElement.dataset.joined = String(!figure.apart);
key("l");
figure.view.show(1.0, 2.0);
figure.draw();
const tell = (x, y) => {
  at("pointermove", PointerEvent, left + across * x, y, { pointerType: "mouse" });
  tips.push(document.getElementById("tip").innerText.split("\\n"));
};
const top1 = figure.top(0) + 4;
tell(0.03, top1);
tell(0.065, top1 + figure.lane + 1);
tell(0.065, top1 + 2 * (figure.lane + 1));
figure.view.show(1.5, 2.5);
figure.draw();
tell(0.5, figure.top(1) + 4);
for (const button of document.querySelectorAll("#legend button")) button.click();
figure.draw();
document.documentElement.dataset.hidden = String(figure.drawn);
document.querySelector('[data-theme-choice="dark"]').click();
document.documentElement.dataset.seen = JSON.stringify({ seen, tips });
"""


def handled(tmp_path: Path) -> tuple[str, dict[str, Any]]:
    file = write_report(run(tmp_path / "run", 4, 20))
    # The script's own figure, as the hand needs it.
    text = file.read_text().replace("let figure, choice", "let choice")
    file.write_text(text.replace("function main() {", "let figure;\nfunction main() {"))
    elements = opened(with_script(file, HAND))
    return elements, json.loads(said(elements, "seen").replace("&quot;", '"'))


def test_wheel_drag_keys_hover_and_legend(tmp_path: Path) -> None:
    elements, noted = handled(tmp_path)
    assert said(elements, "errors") == "0"
    whole, zoomed, right, dragged, closer, wider, left, fitted = noted["seen"]

    def wide(view: list[float]) -> float:
        return view[1] - view[0]

    assert wide(zoomed) < 0.6 * wide(whole)
    assert sum(zoomed) == pytest.approx(sum(whole), rel=0.01), "the pointer's time stays"
    assert right[0] > zoomed[0]
    assert dragged[0] > right[0], "what is under the pointer moves with it, to the left"
    assert wide(dragged) == pytest.approx(wide(right)) == pytest.approx(wide(zoomed))
    assert wide(closer) == pytest.approx(0.6 * wide(dragged))
    assert wide(wider) == pytest.approx(wide(dragged))
    assert left[0] < wider[0]
    assert fitted == whole
    compute, upload, down, died = noted["tips"]
    assert compute == [
        "worker 0, attempt 0",
        "compute: 60 ms from 1.0000 s",
        "step 0, 100 ms",
    ]
    assert upload == ["worker 0, attempt 0", "upload: 10 ms from 1.0600 s", "step 0, 100 ms"]
    assert down[1] == "wait: 15 ms from 1.0600 s"
    assert died[:2] == ["worker 1, attempt 1", "died at 2 s: ValueError: no"]
    assert said(elements, "joined") == "true"
    assert said(elements, "hidden") == "0"
    assert said(elements, "theme") == "dark"


def test_the_address_says_what_is_seen(tmp_path: Path) -> None:
    file = write_report(run(tmp_path / "run", 4, 20))
    whole = said(opened(file), "drawn")
    part = said(opened(file, view="t=1.0,1.3&lanes=0"), "drawn")
    assert 0 < int(part.split()[0]) < int(whole.split()[0]) / 3


def test_a_mistake_in_the_script_shows(tmp_path: Path) -> None:
    """Were this not so, no test above could fail."""
    directory = run(tmp_path / "run", 2, 4)
    text = page.render(reading.RunFiles.read(directory))
    broken = directory / "broken.html"
    broken.write_text(text)
    elements = opened(with_script(broken, "nothing.there();"))
    assert said(elements, "errors") == "1"
    assert "nothing is not defined" in elements


#: What is drawn of many steps from afar, and close.
ZOOMED = """
const drawn = [];
for (const [from, to] of [[0, figure.timeline.length], [20, 20.5]]) {
  figure.view.show(from, to);
  figure.draw();
  drawn.push([figure.alone, figure.drawn]);
}
document.documentElement.dataset.seen = JSON.stringify(drawn);
"""


def test_many_steps_are_added_up_from_afar_and_drawn_one_by_one_close(tmp_path: Path) -> None:
    file = write_report(run(tmp_path / "run", 2, 600))
    text = file.read_text().replace("let figure, choice", "let choice")
    file.write_text(text.replace("function main() {", "let figure;\nfunction main() {"))
    elements = opened(with_script(file, ZOOMED))
    assert said(elements, "errors") == "0"
    afar, close = json.loads(said(elements, "seen"))
    assert afar[1] > 5000
    assert afar[0] < 20, "starts and ends, and no barcode of steps"
    assert close[0] > 0.9 * close[1] > 20, "but for those that the border cuts"
