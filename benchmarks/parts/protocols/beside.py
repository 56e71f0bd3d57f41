"""Methods beside a plain one, seed by seed: bytes and seconds to the plain one's plateau.

The target is a hundredth above the least validation loss that the plain method comes to with the
same seed, for both. Seconds up to it are in virtual time: rounds up to it, each with its exchanges,
whose messages are as long as the run's were on average. CPU time of compressing and of the outer
optimizer is on no side. Sums that are streamed are beside steps: see `virtual.streamed_s`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rich.table import Table

from benchmarks.parts.protocols.trained import Runs, Task, Trained, fragment_sizes
from benchmarks.parts.protocols.virtual import Exchange, step_s, streamed_s
from benchmarks.parts.spread import columns, number, shown, spread
from dayfly.specs.streaming import Streaming

Json = dict[str, Any]
#: How much above the plateau the target is.
SLACK = 1.01
#: All sum by it, so that what messages were follows from a run's bytes.
_COLLECTIVE = "scatter-reduce"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A worker's way to the store.

    Args:
        mb_per_s: each way.
        latency_ms: of a request.
    """

    mb_per_s: float
    latency_ms: float


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to train a task.

    Args:
        name: for people.
        task: what is trained, and how workers step.
        settings: of `dayfly.train`.
    """

    name: str
    task: Task
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def k(self) -> int:
        """Steps of a round."""
        return int(self.settings.get("k", 1))

    @property
    def varies(self) -> bool:
        """Whether messages become shorter or longer in the course of a run."""
        return str(self.settings.get("compress", "")).startswith("significance")

    @property
    def streaming(self) -> Streaming | None:
        """How outer gradients are streamed; None: they are not."""
        return Streaming.of(self.settings.get("fragments"), self.settings.get("overlap"))

    def round_s(
        self, runs: Runs, exchange: Exchange, rounds: int, compute_s: float, link: Link
    ) -> float:
        """Returns seconds of a round in virtual time; of a streamed one on average of an epoch.

        Args:
            runs: of the workers.
            exchange: of all that a round sums, with messages as they were.
            rounds: of an epoch.
            compute_s: of a worker, in a step.
            link: of each worker.
        """
        way = {"bytes_per_s": 1e6 * link.mb_per_s, "latency_s": link.latency_ms / 1e3}
        if self.streaming is None:
            return step_s([exchange], [self.k * compute_s] * runs.workers, **way)
        sizes = fragment_sizes(self.task.make(runs.scratch), self.streaming)
        fragments = [replace(exchange, length=length) for length in sizes]
        each = [compute_s] * runs.workers
        epoch_s = streamed_s(fragments, self.streaming, each, k=self.k, rounds=rounds, **way)
        return epoch_s / rounds

    def train(self, runs: Runs, seed: int, **capped: float) -> Trained:
        """Returns what a run came to.

        Args:
            runs: trains.
            seed: of the run.
            capped: settings of `dayfly.train` that limit links; none: nothing does.
        """
        how = {"collective": _COLLECTIVE, **self.settings, **capped}
        return runs.train(self.task, seed, self.name, **how)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """Up to an epoch. up_bytes: of a worker. seconds, utilisation (computing's share): by link."""

    up_bytes: float
    seconds: list[float]
    utilisation: list[float]


def compare(
    runs: Runs,
    plain: Method,
    methods: Sequence[Method],
    seeds: Sequence[int],
    elements: int,
    compute_s: float,
    links: Sequence[Link],
) -> list[Json]:
    """Returns a row a method; the plain one should be the first.

    Args:
        runs: trains.
        plain: what the others stand beside.
        methods: all that have a row.
        seeds: of the runs.
        elements: of what is summed, in float32 and without compression, of the plain method.
        compute_s: of a worker, in a step.
        links: in virtual time.
    """
    found: dict[str, list[Json]] = {one.name: [] for one in methods}
    for seed in seeds:
        whole = plain.train(runs, seed)
        for one in methods:
            ours = one.train(runs, seed)
            target = SLACK * whole.best
            epoch, at = ours.reached(target), whole.reached(target)
            assert at is not None, "its least loss is below the target"
            late = min(whole.losses[: len(whole.losses) * 3 // 4])
            row: Json = {
                "best": ours.best,
                "more": ours.best / whole.best - 1,
                "still_falls": 1 - whole.best / late,
                "all_fewer": whole.bytes_up / ours.bytes_up,
                "epoch": epoch,
            }
            if epoch is not None:
                way = _way(one, ours, runs, epoch, elements, compute_s, links)
                other = _way(plain, whole, runs, at, elements, compute_s, links)
                row |= {"up_mb": way.up_bytes / 1e6, "fewer": other.up_bytes / way.up_bytes}
                for number_, _ in enumerate(links):
                    row[f"seconds_{number_}"] = way.seconds[number_]
                    row[f"sooner_{number_}"] = other.seconds[number_] / way.seconds[number_]
                    row[f"utilisation_{number_}"] = way.utilisation[number_]
            found[one.name].append(row)
    return [{"method": name, **_together(of_seeds)} for name, of_seeds in found.items()]


def _way(
    method: Method,
    came: Trained,
    runs: Runs,
    epoch: int,
    elements: int,
    compute_s: float,
    links: Sequence[Link],
) -> _Way:
    """What it takes to an epoch."""
    share = epoch / len(came.losses)
    up_bytes = came.up_bytes[epoch - 1] if method.varies else share * came.bytes_up
    rounds = share * came.steps / method.k
    down_bytes = came.bytes_down * up_bytes / came.bytes_up
    exchange = Exchange.measured(elements, runs.workers, rounds, up_bytes, down_bytes)
    of_epoch, left = divmod(came.steps, len(came.losses) * method.k)
    assert method.streaming is None or not left, "an epoch has whole rounds"
    took = [method.round_s(runs, exchange, of_epoch, compute_s, link) for link in links]
    return _Way(
        up_bytes=up_bytes / runs.workers,
        seconds=[rounds * one for one in took],
        utilisation=[method.k * compute_s / one for one in took],
    )


def _together(of_seeds: Sequence[Json]) -> Json:
    """Medians, least and most; of the way to the target of those seeds that came there."""
    came = [one for one in of_seeds if one["epoch"] is not None]
    together: Json = {"seeds": len(of_seeds), "reached": len(came), "of_seeds": list(of_seeds)}
    for name in (came or of_seeds)[0]:
        found = [one[name] for one in of_seeds if one.get(name) is not None]
        together |= spread(name, found) if found else {}
    return together


def tables(rows: Sequence[Json], plain: str, links: Sequence[Link]) -> list[Table | str]:
    """Returns losses, bytes and seconds for a person.

    Args:
        rows: of `compare`.
        plain: name of what the others stand beside.
        links: as they were given to `compare`.
    """
    losses = columns(["method"], ["least loss", f"over {plain}, %", "least to most", "fewer"])
    to_target = columns(["method"], ["reached", "epoch", "MB up", "fewer", "least to most"])
    seconds = columns(["method"], ["MB/s", "s", "sooner", "least to most", "computing"])
    for row in rows:
        percent = {f"more{end}": 100 * row[f"more{end}"] for end in ("", "_min", "_max")}
        fewer = number(row["all_fewer"], 1)
        losses.add_row(row["method"], number(row["best"], 4), *shown(percent, "more", 2), fewer)
        cells = [row["method"], f"{row['reached']} of {row['seeds']}"]
        if not row["reached"]:
            to_target.add_row(*cells, "", "", "", "")
            continue
        epochs, up = f"{row['epoch']:g}", number(row["up_mb"], 2)
        to_target.add_row(*cells, epochs, up, *shown(row, "fewer", 1))
    for at, one in enumerate(links):
        for row in rows:
            if row["reached"]:
                seconds.add_row(
                    row["method"],
                    f"{one.mb_per_s:g}",
                    number(row[f"seconds_{at}"], 1),
                    *shown(row, f"sooner_{at}", 2),
                    f"{100 * row[f'utilisation_{at}']:.0f}%",
                )
        seconds.add_section()
    falls = max(row["still_falls_max"] for row in rows)
    return [
        losses,
        f"fewer: bytes of the whole run. In the last quarter of its epochs {plain} comes lower by "
        f"{100 * falls:.1f}% at most.",
        to_target,
        f"to {SLACK:g} times the least loss of {plain}, of the seeds that reached it; MB up: of a "
        "worker",
        seconds,
        f"to that loss in virtual time, {links[0].latency_ms:g} ms a request; computing: its share",
    ]
