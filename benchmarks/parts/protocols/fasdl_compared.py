"""FasDL's methods beside each other: to one loss, and at equal epochs, seconds and dollars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from statistics import median
from typing import Any

from rich.table import Table

from benchmarks.parts.protocols.fasdl import (
    BASE,
    BUDGETS,
    COUNTED,
    MEMORY_MIB,
    PLATFORM,
    STORES,
    TARGET,
    Compared,
    bought,
    methods,
    most_epochs,
    paces,
)
from benchmarks.parts.protocols.trained import Runs, Trained
from benchmarks.parts.spread import columns, framed, number, shown, spread
from dayfly.batches import share

Json = dict[str, Any]
_EQUAL = {"epochs": "epochs", "seconds": "seconds", "usd": "dollars"}


def measure(runs: Runs, seeds: Sequence[int]) -> list[Json]:
    """A row a store and method."""
    compared, epochs = methods(runs.workers), most_epochs(runs.workers)
    came: dict[str, list[Trained]] = {one.name: [] for one in compared}
    for seed in seeds:
        for one in compared:
            came[one.name].append(one.method(epochs[one.curve]).train(runs, seed))
    return [_row(one, store, runs.workers, came) for store in STORES for one in compared]


def _row(one: Compared, store: str, workers: int, came: Mapping[str, Sequence[Trained]]) -> Json:
    """A method over a store; curves are medians of the seeds."""
    pace, base, ours = paces(store, workers)[one.name], paces(store, workers)[BASE], came[one.name]
    of_seeds: list[Json] = []
    for run, plain in zip(ours, came[BASE], strict=True):
        epoch, at = run.reached(TARGET), plain.reached(TARGET)
        found: Json = {"epoch": epoch}
        if epoch is not None:
            found |= {of: pace.takes(of, epoch) for of in ("seconds", "usd")}
            if at is not None:
                found["sooner"] = base.takes("seconds", at) / found["seconds"]
                found["cheaper"] = base.takes("usd", at) / found["usd"]
        of_seeds.append(found)
    volume = pace.step.step_volume
    ends = range(1, len(ours[0].losses) + 1)
    row: Json = {
        "method": one.name,
        "store": store,
        "batch": one.batch,
        "shares": list(one.shares),
        "step_s": pace.step.step_s,
        "requests": volume.puts + volume.gets,
        "epochs_s": [pace.takes("seconds", n) for n in ends],
        "epochs_usd": [pace.takes("usd", n) for n in ends],
        "losses": [median(of) for of in zip(*(run.losses for run in ours), strict=True)],
        "accuracies": [median(of) for of in zip(*(run.accuracies for run in ours), strict=True)],
        "least": [
            median(of) for of in zip(*(accumulate(run.losses, min) for run in ours), strict=True)
        ],
        "seeds": len(ours),
        "reached": sum(found["epoch"] is not None for found in of_seeds),
        "of_seeds": of_seeds,
        "budgets": list(_budgets(one, store, workers, came)),
    }
    for name in dict.fromkeys(key for found in of_seeds for key in found):
        values = [found[name] for found in of_seeds if found.get(name) is not None]
        row |= spread(name, values) if values else {}
    return row


def _budgets(
    one: Compared, store: str, workers: int, came: Mapping[str, Sequence[Trained]]
) -> Iterator[Json]:
    """Yields what each budget buys: the epoch of the least loss in it; none if it buys no epoch."""
    for of in COUNTED:
        for budget in BUDGETS:
            epochs, plain = (bought(name, store, workers, of, budget) for name in (one.name, BASE))
            found: Json = {"equal": of, "budget": budget, "epochs": epochs}
            if epochs:
                best = [_least(run, epochs) for run in came[one.name]]
                base = [_least(run, plain) for run in came[BASE]]
                found |= spread("loss", [loss for loss, _ in best])
                found |= spread("accuracy", [accuracy for _, accuracy in best])
                better = [ours < theirs for ours, theirs in zip(best, base, strict=True)]
                found["better"] = sum(better)
            yield found


def _least(run: Trained, epochs: int) -> tuple[float, float]:
    """Loss and accuracy of the epoch with the least loss among the first ones."""
    return min(zip(run.losses[:epochs], run.accuracies[:epochs], strict=True))


def table(rows: Sequence[Mapping[str, Any]], workers: int) -> Table:
    """For a person."""
    below: list[Table | str] = []
    for store in dict.fromkeys(row["store"] for row in rows):
        here = [row for row in rows if row["store"] == store]
        taken = columns(["method"], ["batch", "own", "step ms", "came", "epoch", "s", "m$"])
        ratios = columns(["method"], ["s", "m$", "sooner", "cheaper"])
        for row in here:
            own = len(share(row["batch"], 0, workers, tuple(row["shares"])))
            step_ms, reached = number(1e3 * row["step_s"], 0), f"{row['reached']} of {row['seeds']}"
            cells = [row["method"], str(row["batch"]), str(own), step_ms, reached]
            if not row["reached"]:
                taken.add_row(*cells, "", "", "")
                continue
            in_m = {f"usd{end}": 1e3 * row[f"usd{end}"] for end in ("", "_min", "_max")}
            seconds, usd = shown(row, "seconds", 0), shown(in_m, "usd", 1)
            taken.add_row(*cells, f"{row['epoch']:g}", seconds[0], usd[0])
            beside = [shown(row, of, 2)[1] if of in row else "" for of in ("sooner", "cheaper")]
            ratios.add_row(row["method"], seconds[1], usd[1], *beside)
        below += [f"[bold]over {store}[/bold], up to a loss of {TARGET:g}", taken]
        below += ["least to most of the seeds that came; sooner, cheaper: than " + BASE, ratios]
        for of in COUNTED if store == rows[0]["store"] else COUNTED[1:]:  # epochs know no store
            below += [
                f"equal {_EQUAL[of]}: for what so many epochs of {BASE} take",
                _equal(here, of),
            ]
    return framed(
        f"a CNN of 4.7 MB over the digits, {workers} workers of {MEMORY_MIB} MiB, predicted for "
        f"{PLATFORM}; medians of {rows[0]['seeds']} seeds",
        *below,
        "own: samples of rank 0, which aggregates; loss: the least within the budget, and accuracy "
        f"(right) of that epoch; less: seeds with less loss than {BASE}'s",
    )


def _equal(rows: Sequence[Mapping[str, Any]], of: str) -> Table:
    """What the methods come to at equal epochs, seconds or dollars."""
    numbers = ["for", "epochs", "loss", "least to most", "right %", "less"]
    made = columns(["method"], numbers)
    for budget in BUDGETS:
        for row in rows:
            (found,) = (
                one for one in row["budgets"] if (one["equal"], one["budget"]) == (of, budget)
            )
            cells = [row["method"], str(budget), str(found["epochs"])]
            if "loss" in found:
                cells += [*shown(found, "loss", 3), number(100 * found["accuracy"], 1)]
                cells.append(str(found["better"]))
            made.add_row(*cells)
        made.add_section()
    return made
