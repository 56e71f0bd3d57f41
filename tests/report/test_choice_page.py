"""The page and the picture of a choice."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from benchmarks.parts.choosing.on_jobs import beside

from dayfly.catalogue.lookup import Catalogue
from dayfly.cli.bench import checkout_module
from dayfly.cli.choosing import _papers
from dayfly.errors import RequestError
from dayfly.planning.profile import Profile
from dayfly.runs.choosing.choice import Choice, PaperChoice, choice_of
from dayfly.runs.choosing.query import Goal, PlanQuery
from dayfly.runs.choosing.targets import Target
from dayfly.runs.report import choice_picture
from dayfly.runs.report.choice import check_plot, page, write_plot
from dayfly.runs.report.choice_drawings import Axis
from tests.choose.lambda_by_hand import job
from tests.report.browser import opened

_VOID = {"meta"}


def chosen(made: Profile | None = None, **asked: object) -> Choice:
    given = {"workers": 6, "micro_batches": (4,), "time_limit_s": 5.0, **asked}
    return choice_of([Target.of(made or job(6), Catalogue())], PlanQuery(**given))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def choice() -> Choice:
    return chosen(goal=Goal(deadline_s=60.0))


class Whole(HTMLParser):
    """Elements that are open; what is closed in another order is wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_it_is_whole_and_needs_nothing_else(choice: Choice) -> None:
    made = page(choice)
    whole = Whole()
    whole.feed(made)
    assert whole.open == []
    assert "script" not in whole.seen
    assert not re.search(r"(src|href)=", made)
    assert "prefers-color-scheme: dark" in made
    assert "$" + "{" not in made


def test_each_plan_is_in_all_its_parts(choice: Choice) -> None:
    made = page(choice)
    count = len(choice.front.points)
    front, bars = section(made, "front"), section(made, "bars")
    assert len(re.findall(r'class="point[^"]*place-0"', front)) == count
    assert front.count('class="ring"') == 1
    assert "chosen" in front
    assert "deadline 60 s" in front
    assert len(re.findall(r'<text class="(?:plain|strong)" x="6"', bars)) == count
    assert 'class="part-compute"' in bars
    for point in choice.front.points:
        assert f"{point.plan.candidate.kind}: {point.plan.candidate.words}" in made
    assert choice.words.split(".")[0] in made
    assert "How sure: " in section(made, "why")


def section(made: str, name: str) -> str:
    return made.partition(f'<h2 id="{name}-title">')[2].partition("</section>")[0]


def test_plans_that_are_not_on_the_front_are_faint(choice: Choice) -> None:
    shown = {id(point.plan.candidate) for point in choice.front.points}
    assert choice.others
    assert not any(id(other.plan) in shown for other in choice.others)
    # Each is left out for one that is no worse, or would be at most as much better as errors are.
    for other in choice.others:
        assert any(
            one.seconds <= other.seconds * 1.25 and one.usd <= other.usd * 1.25
            for one in choice.front.points
        )
    front = section(page(choice), "front")
    assert 0 < front.count('class="other"') <= len(choice.others) + 1  # and the key's


def test_each_setting_changed_alone(choice: Choice) -> None:
    found = choice.knobs
    own = choice.chosen.plan.candidate.own
    assert {one.setting for one in found} >= {"memory", "micro-batches"}
    for one in found:
        assert (one.option is None) == bool(one.why)
        if one.option is not None:
            # As `dayfly predict` has it, and of the chosen plan's settings all but one.
            changed = one.option.candidate.own
            keys = {*own, *changed} - {"collective", "aggregators"}
            names = {"workers", "replicas", "micro_batches"} if one.setting == "replicas" else None
            differ = {key for key in keys if own.get(key) != changed.get(key)}
            assert differ <= (names or differ)
            assert names or len(differ) <= 1
    made = section(page(choice), "knobs")
    assert made.count("<tr>") == len(found) + 1


def test_what_papers_choose_is_shown_beside(choice: Choice) -> None:
    option = choice.front.points[0].plan
    papers = [
        PaperChoice(method="a program", option=option),
        PaperChoice(method="another", why="it finds <no> plan"),
    ]
    made = page(choice, papers)
    assert 'class="paper"' in section(made, "front")
    listed = section(made, "papers")
    assert option.short in listed
    assert "it finds &lt;no&gt; plan" in listed
    assert "plan from a checkout" in section(page(choice), "papers")


def test_a_page_needs_nothing_that_only_benches_import(
    choice: Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `make demo`, which installs no tools of tests and benches."""
    for module in ("on_jobs", "bayes"):
        monkeypatch.delitem(sys.modules, f"benchmarks.parts.choosing.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(RequestError, match=r"need optuna.*run make \.venv/\.test"):
        checkout_module("parts.choosing.on_jobs")
    assert "make .venv/.test was run" in page(choice, _papers(choice))


def test_papers_methods_answer_the_question_of_the_choice(choice: Choice) -> None:
    found = {one.method: one for one in beside(choice)}
    assert {"two-stage search (FasDL)", "greedy (CE-scaling)", "TPDMP, grid"} <= set(found)
    exactly = found["FuncPipe, solved exactly"]
    assert exactly.option is not None
    assert exactly.option.candidate.target is choice.chosen.plan.candidate.target


def test_a_layer_is_drawn_for_each(choice: Choice) -> None:
    cut = page(choice).partition('<h2 id="cut-title">')[2].partition("</section>")[0]
    drawn = 1 + sum(
        1
        for point in choice.front.points
        if point is not choice.chosen and point.plan.candidate.settings.cut
    )
    assert cut.count("MB, passes on") == 6 * drawn


def test_names_are_harmless() -> None:
    wicked = replace(job(6), job="<script>alert(1)</script>")
    assert "<script>" not in page(chosen(wicked))


@pytest.mark.long
def test_pages_and_pictures_go_where_they_are_asked(choice: Choice, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert write_plot(choice, tmp_path / "a.html") == [tmp_path / "a.html"]
    assert write_plot(choice, tmp_path / "a.png") == [tmp_path / "a.png"]
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    found = write_plot(choice, tmp_path / "both")
    assert [file.name for file in found] == ["plan.html", "plan.png"]
    assert found[1].read_bytes() == (tmp_path / "a.png").read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.html", "a.png", "both"]
    with pytest.raises(RequestError, match=r"--plot .* cannot be written: "):
        write_plot(choice, tmp_path / "nowhere" / "a.html")


def test_pictures_without_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(choice_picture.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        RequestError, match=r"pip install 'dayfly\[pictures\]', or --plot FILE.html"
    ):
        check_plot(tmp_path / "a.png")
    check_plot(tmp_path / "a.html")


@pytest.mark.long
def test_a_browser_shows_it(choice: Choice, tmp_path: Path) -> None:
    file = tmp_path / "plan.html"
    write_plot(choice, file)
    shown = opened(file)
    assert "Where the time goes" in shown
    assert shown.count("<svg") >= 3


def test_axes() -> None:
    even = Axis.over([10.0, 20.0], 0.0, 100.0)
    assert not even.log
    assert even.ticks() == [10.0, 12.0, 14.0, 16.0, 18.0, 20.0]
    assert even.at(15.0) == pytest.approx(50.0)
    wide = Axis.over([1.0, 100.0], 0.0, 100.0)
    assert wide.log
    assert wide.ticks() == [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
    assert wide.at(10.0) == pytest.approx(50.0)
    one = Axis.over([5.0], 0.0, 100.0)
    assert one.at(5.0) == pytest.approx(50.0)
