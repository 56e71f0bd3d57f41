"""What a person sees: the bar, the line of an epoch, and the dollars so far."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dayfly.callbacks import ProgressBar
from dayfly.catalogue.metering import MeteredInvocation, bill
from dayfly.errors import RequestError
from dayfly.runs.display import AboveBar, Bar, Lines, LoopBar, Standing, epoch_line
from dayfly.runs.following import Teller
from dayfly.runs.functions import catalogue
from dayfly.runs.settings import Settings
from dayfly.runs.spending import Spending
from dayfly.specs.events import Ended, Invoked

PLATFORM = catalogue(Settings()).platform("aws-lambda")


def used(function: str, run_s: float) -> MeteredInvocation:
    return MeteredInvocation(
        function=function, attempt=0, memory_mib=1024, init_s=0.0, run_s=run_s, outcome="returned"
    )


def invoked(function: str, at: float) -> Invoked:
    return Invoked(at=at, function=function, attempt=0, memory_mib=1024)


def test_what_is_spent_so_far_is_what_the_bill_will_say_of_it() -> None:
    spending = Spending(lambda some: bill(some, PLATFORM).cost_usd, [used("worker-9", 5.0)])
    spending.hear(invoked("worker-0", 100.0))
    spending.hear(invoked("worker-1", 110.0))
    now = [used("worker-9", 5.0), used("worker-0", 30.0), used("worker-1", 20.0)]
    assert spending.usd(130.0) == pytest.approx(bill(now, PLATFORM).cost_usd)
    assert spending.workers == 2
    spending.hear(Ended(at=140.0, used=used("worker-0", 40.0), death=True))
    then = [used("worker-9", 5.0), used("worker-0", 40.0), used("worker-1", 50.0)]
    assert spending.usd(160.0) == pytest.approx(bill(then, PLATFORM).cost_usd)
    assert spending.workers == 1


def test_the_bar_says_epoch_rate_rest_workers_and_dollars() -> None:
    seen = io.StringIO()
    bar = Bar(Console(file=seen, force_terminal=True, width=100, color_system=None))
    teller = Teller(bar, spending=Spending(lambda some: 0.00125 * len(some)))
    bar.preparing()
    bar.started(0, 30, 10)
    teller.tell("coordinator", invoked("worker-0", 1.0))
    for step in range(8):
        bar.step(step, 0.5)
    bar._progress.refresh()
    bar.finished()
    last = seen.getvalue().replace("\r", "\n").splitlines()
    line = next(one for one in reversed(last) if "epoch 3/10" in one)
    for words in ("27%", " steps/s ETA 0:00:0", "1 worker $0.0013", "loss 0.5000"):
        assert words in line


def test_an_epoch_is_a_line() -> None:
    record = {"epoch": 3, "train_loss": 0.5, "val_loss": None, "val_accuracy": 0.25, "lr": 1e-6}
    assert epoch_line(record) == "epoch 3: loss 0.5000, accuracy 25.0%, lr 1e-06"


def test_a_job_that_asks_for_a_bar_gets_lines_of_progress_where_there_is_no_terminal() -> None:
    seen, clock = io.StringIO(), [0.0]
    lines = Lines(Console(file=seen, width=100), now=lambda: clock[0])
    lines.started(10, 40, 4)
    lines.bar(5.0)
    lines.spent(2, 0.00125)
    for step in range(10, 22):
        clock[0] += 1.0
        lines.step(step, 0.5)
    assert seen.getvalue().splitlines() == [
        "continuing after step 10 of 40",
        "epoch 2/4 37% 1 steps/s ETA 0:00:25 2 workers $0.0013 loss 0.5000",
        "epoch 3/4 50% 1 steps/s ETA 0:00:20 2 workers $0.0013 loss 0.5000",
    ]
    with pytest.raises(RequestError, match="every_s 0: give a number of seconds above 0"):
        ProgressBar(every_s=0)


def test_steps_of_a_loop_are_estimated_from_the_epochs_that_ended() -> None:
    now = Standing(None, 4, done=6, first=0, loss="loss 0.5000")
    assert now.words(2.0) == "epoch 1/4 3 steps/s loss 0.5000"
    now.done = 10
    now.end_epoch(1)
    now.done = 15
    assert now.words(5.0) == "epoch 2/4 37% 3 steps/s ETA 0:00:08 loss 0.5000"
    assert Standing(None, 4, 2, done=20, first=20).words(5.0) == "epoch 3/4"
    assert Standing(None, None, done=3, first=1).words(1.0) == "step 3 2 steps/s"


def test_what_functions_print_stands_above_the_bar_of_their_loop() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    seen, printed = io.StringIO(), Terminal()
    bar = LoopBar(Console(file=seen, force_terminal=True, width=60, color_system=None))
    output = AboveBar(printed, bar)
    bar.preparing()
    output.write("[rank 0] before\n")
    assert (printed.getvalue(), seen.getvalue()) == ("[rank 0] before\n", "")
    bar.spent(2, 0.001)
    bar.started(0, None, 3)
    bar.step(0, 0.5)
    output.write("\033[36m[rank 0]\033[0m a line that is far longer than the terminal is wide\n")
    bar._progress.refresh()
    bar.finished()
    output.write("[rank 0] after\n")
    assert "a line that is far longer than the terminal is wide\n" in seen.getvalue()
    assert "epoch 1/3" in seen.getvalue()
    assert "100%" not in seen.getvalue(), "nobody knows the steps yet"
    assert printed.getvalue() == "[rank 0] before\n[rank 0] after\n"
    file = io.StringIO()
    AboveBar(file, bar).write("a\n")
    assert file.getvalue() == "a\n"
