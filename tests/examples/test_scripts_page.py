"""The page on scripts, followed by the letter in an empty directory."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from benchmarks.parts.redis_server import RedisServer

from tests.examples import launching
from tests.examples.launching import ABORTED, WAIT_S, failing, torchrun
from tests.examples.page import (
    Command,
    File,
    agrees,
    commands_of,
    holds,
    measured,
    missing,
    quoted,
    steps_of,
)

PAGE = Path(__file__).parents[2] / "docs" / "scripts.md"
STEPS = steps_of(PAGE.read_text())
#: The page's address of a Redis, for which the test has one of its own.
REDIS = "redis://127.0.0.1:6379/0"
LIFETIME_S = 30.0
#: How often gloo may end a process that is done (see `launching.ABORTED`).
GLOO_ENDS = 5
_TIME = re.compile(r"^total time +([\d.]+) s$", re.MULTILINE)


@dataclass(frozen=True)
class Typed:
    """A command of the page, and what came of it."""

    command: Command
    code: int
    output: str


@dataclass(frozen=True)
class Followed:
    """The page, after it was followed to its end in `directory`."""

    directory: Path
    typed: list[Typed]

    def outputs(self, words: str) -> list[str]:
        """Of the commands with these words."""
        return [one.output for one in self.typed if words in one.command.line]

    def measured(self, words: str) -> list[dict[str, float]]:
        """Figures that the commands with these words printed, of each."""
        found = [dict(measured(output)) for output in self.outputs(words)]
        assert all(found), words
        return found


def typed(command: Command, directory: Path, redis_url: str) -> Typed:
    """Type it; once more where gloo ended it in vain."""
    for _ in range(GLOO_ENDS):
        done = typed_once(command, directory, redis_url)
        if done.code == 0 or ABORTED not in done.output:
            break
    return done


def typed_once(command: Command, directory: Path, redis_url: str) -> Typed:
    line = command.line.replace(REDIS, redis_url)
    # The last step takes several lives where nothing else runs.
    return Typed(command, *launching.typed(line, directory, wait_s=2 * WAIT_S))


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Followed:
    if shutil.which("redis-server") is None:
        pytest.skip("the page uses redis-server")
    directory = tmp_path_factory.mktemp("page")
    found = []
    with RedisServer() as server:
        for step in STEPS:
            if isinstance(step, File):
                (directory / step.name).write_text(step.text)
            else:
                found.append(typed(step, directory, server.url))
    return Followed(directory, found)


@pytest.mark.slow  # test_pages.py reads the page's files and commands in the suite
@pytest.mark.timeout(900)
def test_what_the_page_says_comes_out(followed: Followed) -> None:
    for one in followed.typed:
        assert one.code == 0, f"{one.command.line}\n{one.output}"
        lost = missing(one.command.said, one.output)
        assert not lost, f"{one.command.line}\ndid not say {lost}, but\n{one.output}"


@pytest.mark.slow  # test_scripts.py, a script under torchrun and on functions
@pytest.mark.timeout(900)
def test_functions_learn_what_processes_learn(followed: Followed) -> None:
    """Over every store, with two workers or four, as with gloo."""
    (gloo,) = followed.measured("torchrun")
    on_functions = followed.measured("train_ddp.py")[1:]
    assert len(on_functions) >= 3
    for one in on_functions:
        assert one == pytest.approx(gloo, abs=0.002)


@pytest.mark.slow  # tests/run_command/ and tests/scripts/test_script_lifetime.py, of shorter ones
@pytest.mark.timeout(900)
def test_lives_that_end_change_nothing(followed: Followed, tmp_path: Path) -> None:
    """The last step's result is that of its script without any lifetime."""
    (short,) = followed.measured("--lifetime")
    output = followed.outputs("--lifetime")[0]
    took_s = float(_TIME.findall(output)[0])
    assert "goes on after epoch" in output or took_s < LIFETIME_S
    script = followed.directory / "train_on.py"
    output = torchrun(2, script, cwd=tmp_path)
    assert short == pytest.approx(dict(measured(output)), abs=0.002)


@pytest.mark.long
@pytest.mark.parametrize(
    ("beginning", "script", "flags"),
    [
        (
            "the members are out of step",
            "import torch, torch.distributed as dist\n"
            "dist.init_process_group()\n"
            "x = torch.ones(2)\n"
            "dist.broadcast(x, 1) if dist.get_rank() else dist.all_reduce(x)\n"
            "dist.barrier()\n",
            (),
        ),
        (
            "the script asks for a group",
            "import os, torch.distributed as dist\n"
            "dist.init_process_group(rank=int(os.environ['RANK']), world_size=8)\n",
            (),
        ),
        ("3 lives in a row", "import time\ntime.sleep(600)\n", ("--lifetime", 2)),
    ],
)
def test_what_goes_wrong_is_said_as_the_page_has_it(
    beginning: str, script: str, flags: tuple[object, ...], tmp_path: Path
) -> None:
    (tmp_path / "wrong.py").write_text(script)
    said = quoted(PAGE.read_text(), beginning)
    output = failing(2, *flags, "wrong.py", cwd=tmp_path)
    assert holds(output, said), output


def test_the_page_has_its_four_steps() -> None:
    names = [step.name for step in STEPS if isinstance(step, File)]
    assert names == ["train.py", "train_ddp.py", "train_on.py"]
    lines = [step.line for step in STEPS if isinstance(step, Command)]
    assert lines[0] == "python train.py"
    assert lines[1].startswith("torchrun ")
    assert all(line.startswith("dayfly ") for line in lines[2:])
    assert any(REDIS in line for line in lines)
    assert any(f"--lifetime {LIFETIME_S:g} " in line for line in lines)


def test_files_and_commands_are_found_in_a_page() -> None:
    page = (
        "Not `one.py`, but `two.py`:\n\n```python\nx = 1\n```\nthen\n\n"
        "```console\n$ python two.py\n$ ls\n...\ntwo.py\n```\n```toml\nx = 1\n```\n"
    )
    assert steps_of(page) == [
        File("two.py", "x = 1\n"),
        Command("python two.py", ()),
        Command("ls", ("two.py",)),
    ]
    assert commands_of("$ a\nb\nc\n") == [Command("a", ("b", "c"))]


@pytest.mark.parametrize(
    ("line", "agreed"),
    [
        ("[rank 0] loss 0.41, took 9 s", True),
        ("[rank 0] loss 0.49, took 3 s", False),
        ("[rank 0] loss 0.40 took 3 s", False),
    ],
)
def test_a_line_agrees_with_the_page(line: str, agreed: bool) -> None:
    said = "[rank 0] loss 0.40, took 3 s"
    assert agrees(said, line) is agreed
    assert missing((said,), f"before\n{line}\nafter") == ([] if agreed else [said])


def test_lines_in_another_order_are_missing() -> None:
    assert missing(("a", "b"), "b\na") == ["b"]


def test_what_is_quoted_is_looked_for_whatever_its_numbers() -> None:
    said = quoted("say `3 lives went` or `4 lives came`", "4 lives")
    assert said == "4 lives came"
    assert holds("dayfly: 12 lives came, then", said)
    assert not holds("dayfly: 12 lives went, then", said)
