"""Whatever is wrong with a file that is read back: one sentence that names it, and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dayfly.planning.profile import read_profile
from tests.reading import damage

RUNS = ("job", "planned", "script", "simulated")
SOME = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of what was recorded."""
    directory = tmp_path_factory.mktemp("recorded")
    for name in RUNS:
        damage.copied(name, directory)
    for name in ("profile.json", "plan.json"):
        (directory / name).write_bytes((damage.RECORDED / name).read_bytes())
    return directory


def is_one_sentence(said: str | None, file: Path) -> None:
    if said is not None:
        assert file.name in said or file.parent.name in said, said
        assert len(said.splitlines()) == 1, said
        assert len(said) < 700, said


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(
    "name",
    ["run.json", "history.json", "bill.json", "events/coordinator.jsonl", "events/worker-0.jsonl"],
)
def test_any_damage_to_a_runs_file_is_told_in_a_sentence(place: Path, run: str, name: str) -> None:
    file = place / run / name
    whole = file.read_bytes()

    @SOME
    @given(damage.damaged(whole, lines=name.endswith("l")))
    def tried(content: bytes) -> None:
        with damage.with_bytes(file, content):
            for action in (damage.report, *([damage.resume] * (run in ("job", "script")))):
                is_one_sentence(damage.refusal(action, place / run), file)

    tried()


@pytest.mark.parametrize("name", ["latest.json", "000000010/tree.json", "000000010/part-0-of-2"])
def test_no_damage_to_a_checkpoint_goes_unseen(place: Path, name: str) -> None:
    file = place / "job" / "checkpoint" / name
    whole = file.read_bytes()
    alike = damage.damaged(whole) if name.endswith(".json") else st.binary(max_size=400)

    @SOME
    @given(alike)
    def tried(content: bytes) -> None:
        with damage.with_bytes(file, content):
            said = damage.refusal(damage.resume, place / "job")
        is_one_sentence(said, file)
        same = content.split() == whole.split()
        before = name == "latest.json" and b'"whole"' not in content  # as earlier versions have it
        assert said is not None or same or before

    tried()


@pytest.mark.parametrize("name", ["profile.json", "plan.json", "planned/plan.json"])
def test_any_damage_to_a_profile_or_a_plan_is_told_in_a_sentence(place: Path, name: str) -> None:
    file = place / name
    action = read_profile if name == "profile.json" else damage.read_plan

    @SOME
    @given(damage.damaged(file.read_bytes()))
    def tried(content: bytes) -> None:
        with damage.with_bytes(file, content):
            is_one_sentence(damage.refusal(action, file), file)

    tried()
