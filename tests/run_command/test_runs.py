"""What becomes of a script on functions: what it finds, how it ends, when all start again."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from dayfly.errors import RequestError
from dayfly.life.faults import Fault
from dayfly.runs.job_record import Record
from dayfly.runs.report import write_report
from tests.run_command.scripts import resume, run

pytestmark = pytest.mark.long

RESTART = 'os.environ["TORCHELASTIC_RESTART_COUNT"]'


def test_a_script_finds_itself_as_the_interpreter_would_have_it(here: Path) -> None:
    ran = run(
        here,
        """
        import os, sys
        if __name__ == "__main__":
            assert sys.modules["__main__"].__dict__ is globals()
            found = sys.argv[1:], os.getcwd(), sys.path[0], __file__
            print((*found, os.environ["RANK"], os.environ["WORLD_SIZE"]))
            print("to standard error", file=sys.stderr)
        """,
        "--lr",
        "0.1",
        "--workers",
        "9",
    )
    assert ran.result.status == "done", ran.result.error
    directory = str(here)
    for rank in range(2):
        first, second = ran.of(rank)
        args = ["--lr", "0.1", "--workers", "9"]
        place = (args, directory, directory, str(here / "script.py"))
        assert ast.literal_eval(first) == (*place, str(rank), "2")
        assert second == "to standard error"
    assert ran.result.restarts == 0
    assert ran.result.workers == 2
    assert ran.result.billed_s > 0
    assert json.loads((ran.directory / "bill.json").read_text())["requests"] == 2
    assert json.loads((ran.directory / "run.json").read_text())["kind"] == "script"
    page = write_report(ran.directory).read_text()
    assert ran.result.run_id is not None
    assert ran.result.run_id in page
    with pytest.raises(RequestError, match="go on with it by dayfly run --resume"):
        Record.load(ran.directory)


def test_one_ranks_exception_ends_the_others_and_is_shown_first(here: Path) -> None:
    ran = run(
        here,
        """
        import os, time
        def inner():
            raise ValueError("no, never")
        if os.environ["RANK"] == "1":
            inner()
        time.sleep(100)
        """,
        max_restarts=1,
    )
    error = ran.result.error
    assert ran.result.status == "failed"
    assert ran.result.restarts == 1
    assert error is not None
    first, blank, trace = error.split("\n", 2)
    assert first == (
        "worker 1 raised ValueError: no, never (twice in a row, and nothing was written in between)"
    )
    assert blank == ""
    file = here / "script.py"
    assert trace.startswith(
        f'Traceback (most recent call last):\n  File "{file}", line 6, in <module>\n'
    )
    assert trace.endswith("ValueError: no, never")
    assert ran.notes == (
        "worker 1 raised ValueError: no, never: all workers start again, restart 1 of 1",
    )
    assert ran.of(1).count("ValueError: no, never") == 2
    assert ran.of(0) == []


def test_exit_codes_are_named_and_success_is_none(here: Path) -> None:
    text = """
        import os, sys
        sys.exit(3 if os.environ["RANK"] == "1" and len(sys.argv) > 1 else 0)
    """
    assert run(here, text).result.status == "done"
    (here / "run").rename(here / "before")
    ran = run(here, text, "now", max_restarts=0)
    assert ran.result.error == (
        "worker 1 ended itself (exit code 3) (no restart, as --max-restarts 0 allows)"
    )


@pytest.mark.quick
def test_a_killed_rank_starts_all_again(here: Path) -> None:
    ran = run(
        here,
        f"""
        import os
        print("life", {RESTART})
        """,
        faults=[Fault(1, 0, "start"), Fault(0, 1, "end")],
        max_restarts=0,
    )
    assert ran.result.status == "done", ran.result.error
    assert ran.result.restarts == 2
    assert ran.of(0)[-2:] == ["life 1", "life 2"]
    assert ran.of(1)[-1] == "life 2"
    killed = "was killed from outside (killed by SIGKILL from outside): all workers start again"
    assert ran.notes == (f"worker 1 {killed}", f"worker 0 {killed}"), "kills are not counted"


def test_lifetimes_that_end_are_no_deaths(here: Path) -> None:
    ran = run(
        here,
        f"""
        import os, time
        from pathlib import Path
        life = int({RESTART})
        Path(os.environ["DAYFLY_RUN_DIR"], f"{{life}}-{{os.environ['RANK']}}").touch()
        time.sleep(100 if life < 2 else 0)
        """,
        lifetime_s=3.0,
        max_restarts=0,
    )
    assert ran.result.status == "done", ran.result.error
    assert ran.result.restarts == 0
    lives = len(ran.notes)  # one more may end so, if the machine is busy in the last
    assert lives >= 2
    assert all("came to the end of its lifetime" in note for note in ran.notes)
    files = {file.name for file in (ran.directory / "files").iterdir()}
    assert files >= {f"{lives}-{rank}" for rank in range(2)}
    assert len(files) >= 4, "and others before, unless they were held up for all of a life"


def test_lifetimes_in_vain_fail_the_run(here: Path) -> None:
    ran = run(here, "import time; time.sleep(100)", lifetime_s=0.4, workers=1)
    assert ran.result.status == "failed"
    assert ran.result.error == (
        "3 lives in a row came to the end of their 0.4 s, and nothing was written below "
        f"{ran.directory / 'files'} (DAYFLY_RUN_DIR) or {here} meanwhile: save a checkpoint there, "
        "such as when dayfly.checkpoint_due() says so, and load it at the start, or give a longer "
        "--lifetime"
    )


def test_a_script_that_changed_is_not_run(here: Path) -> None:
    ran = run(
        here,
        """
        import os
        if os.environ["RANK"] == "1":
            with open(__file__, "a") as file:
                file.write("# other")
            raise ValueError
        """,
    )
    assert ran.result.status == "failed"
    words = f"{here / 'script.py'} has changed since the run began: put it back"
    assert (ran.result.error or "").startswith(words)
    with pytest.raises(RequestError, match="has changed since the run began"):
        resume(here)


def test_memory_that_runs_out_is_said_with_a_remedy(here: Path) -> None:
    ran = run(
        here,
        """
        import os, torch
        if os.environ["RANK"] == "0":
            torch.ones(2**30)
        """,
        memory_mib=600,
        max_restarts=0,
    )
    assert (ran.result.error or "").startswith("worker 0 ran out of memory")
    assert ": raise --memory, lower the batch size, or use more workers (no" in ran.result.error


def test_threads_pools_children_and_exit_functions_have_their_end(here: Path) -> None:
    ran = run(
        here,
        """
        import atexit, subprocess, sys, threading
        import torch
        from concurrent.futures import ThreadPoolExecutor
        from torch.utils.data import DataLoader, TensorDataset

        data = TensorDataset(torch.arange(64.0))
        loader = DataLoader(data, batch_size=8, num_workers=2)
        print("loaded", sum(batch.sum().item() for (batch,) in loader))
        child = [sys.executable, "-c", "print('child')"]
        print(subprocess.run(child, capture_output=True, text=True).stdout.strip())
        held = threading.Event()

        def wait(name):
            held.wait()
            sys.stdout.write(f"{name}\\n")  # whole: print writes a line's end apart

        atexit.register(print, "exit function")
        ThreadPoolExecutor(1).submit(wait, "pool")
        threading.Thread(target=wait, args=["thread"]).start()
        threading.Timer(0.2, held.set).start()
        """,
        workers=1,
    )
    assert ran.result.status == "done", ran.result.error
    lines = ran.of(0)
    assert lines[:2] == ["loaded 2016.0", "child"]
    assert sorted(lines[2:4]) == ["pool", "thread"]
    assert lines[4:] == ["exit function"]


def test_a_fork_that_comes_to_the_end_of_the_script_is_not_the_function(here: Path) -> None:
    ran = run(
        here,
        """
        import os, sys, time
        if len(sys.argv) > 1 and os.fork() == 0:
            sys.exit(7)
        child = os.fork()
        if child:
            print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            time.sleep(0.3)
            print("parent")
        """,
        "now",
        workers=1,
        max_restarts=0,
    )
    assert ran.result.status == "done", ran.result.error
    assert ran.of(0) == ["child 0", "parent"]


def test_a_rank_may_return_early(here: Path) -> None:
    ran = run(
        here,
        """
        import os, time
        from pathlib import Path
        done = Path("done")
        if os.environ["RANK"] == "0":
            done.touch()
        else:
            while not done.exists():
                time.sleep(0.01)
            time.sleep(0.3)
            print("late")
        """,
    )
    assert ran.result.status == "done", ran.result.error
    assert ran.of(1) == ["late"]


def test_a_resumed_run_has_its_files_and_settings(here: Path) -> None:
    text = f"""
        import os, sys
        from pathlib import Path
        kept = Path(os.environ["DAYFLY_RUN_DIR"], "kept")
        if not kept.exists():
            kept.write_text("kept")
            raise ValueError
        print({RESTART}, os.environ["WORLD_SIZE"], kept.read_text(), sys.argv[1:])
    """
    failed = run(here, text, "a", workers=1, max_restarts=0)
    assert failed.result.status == "failed"
    done = resume(here)
    assert done.result.status == "done", done.result.error
    assert done.of(0) == ["1 1 kept ['a']"]
    assert done.result.wall_s > failed.result.wall_s
    assert done.result.billed_s > failed.result.billed_s
    assert resume(here).result == done.result, "a run that is done is returned as it is"
