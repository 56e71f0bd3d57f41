"""FasDL's hybrid asynchronous protocol where computing counts (figures 11 to 13).

    losses    of real runs: a CNN of 4.7 MB over the digits, with several seeds
    seconds   predicted for functions of AWS Lambda, from the catalogue alone (70 MB/s, S3's 40 ms)
    dollars   by the catalogue's prices, requests to the store included

    ScatterReduce, AllReduce    LambdaML's: all workers sum, or one does
    K-REDUCE                    half of them do
    HAP                         one does, and the others do not wait
      equal shares              of the same batch
      shares auto               of the same batch: both roles end a step together
      FasDL's batch             likewise, and aggregators have as many samples as ScatterReduce's
                                workers, so the batch is larger

Sums of all that wait have the same bits, so one run a seed has the curve of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table
from torch import nn

import dayfly
from benchmarks.parts.protocols.beside import Method
from benchmarks.parts.protocols.hybrid import digits, sgd
from benchmarks.parts.protocols.trained import Runs, Task, Trained
from benchmarks.parts.spread import columns, framed, number, shown, spread
from dayfly.batches import share
from dayfly.catalogue.lookup import Catalogue
from dayfly.job import Job
from dayfly.planning.catalogued import Assumed
from dayfly.planning.plan import Prediction
from dayfly.planning.profile import Profile
from dayfly.runs.even_shares import even_shares
from dayfly.runs.plans import JobSpec
from dayfly.runs.profiling.from_catalogue import catalogued_profile
from dayfly.runs.settings import Settings

Json = dict[str, Any]
#: A function has a quarter of a vCPU.
PLATFORM, MEMORY_MIB = "aws-lambda", 442
#: Of a worker without a model, as in the papers' comparisons; so many samples fit beside it.
_BASE_MIB = 300.0
#: Stores of figure 13, and seconds of a request where the catalogue has none.
STORES: Mapping[str, float | None] = {"s3": None, "elasticache": 0.001}
#: B^a: samples of a step of ScatterReduce's workers, and of aggregators with FasDL's batch.
OWN = 32
#: Validation loss up to which seconds and dollars are counted.
TARGET = 0.1
_EPOCHS = 10
_RATES = (0.1, 0.05, 0.02, 0.01)
#: Learning rates, of `_RATES`: by `choose`, with other seeds than are reported.
_RATE = {"bsp": 0.02, "bsp, larger batch": 0.05, "hap": 0.02, "hap, larger batch": 0.02}
_WAITS = {"sync": "bsp", "collective": "k-reduce", "aggregators": 1}
_LAGS = {**_WAITS, "sync": "hap"}
BASE = "ScatterReduce"


def cnn() -> nn.Sequential:
    """x_BCHW (B, 1, 8, 8) -> scores (B, 10); 14 layers, 1,182,730 parameters."""
    layers: list[nn.Module] = []
    for before, after, pooled in ((1, 32, False), (32, 64, True), (64, 128, True)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
        if pooled:
            layers.append(nn.MaxPool2d(2))
    layers += [nn.Conv2d(128, 256, 3, padding=1), nn.ReLU(), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(1024, 768), nn.ReLU(), nn.Linear(768, 10))
    for one in model[:-1]:  # so that it learns from the first steps on
        if isinstance(one, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(one.weight, nonlinearity="relu")
    return model


def job(batch: int, rate: float, epochs: int = _EPOCHS) -> Job:
    """What is trained.

    Args:
        batch: samples of all workers.
        rate: learning rate.
        epochs: of the run.
    """
    return Job(
        model=cnn,
        data="digits",
        loss=nn.functional.cross_entropy,
        optimizer=partial(sgd, rate),
        batch_size=batch,
        epochs=epochs,
    )


def _made(batch: int, rate: float, _: Path) -> Job:
    return job(batch, rate)


@cache
def profile(store: str) -> Profile:
    """Returns the job's profile on the platform over a store of `STORES`, from the catalogue."""
    return catalogued_profile(
        job(OWN, _RATES[0]),
        name="digits",
        platform=PLATFORM,
        store=store,
        memory_mib=(MEMORY_MIB,),
        assumed=Assumed(base_mib=_BASE_MIB, latency_s=STORES[store]),
        catalogue=Catalogue(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A method.

    Args:
        name: for people.
        batch: samples of all workers.
        settings: of `dayfly.train` and `dayfly.predict`.
        rate: name in `_RATE`.
    """

    name: str
    batch: int
    settings: Mapping[str, Any]
    rate: str

    @property
    def shares(self) -> tuple[int, ...]:
        """Each worker's share of the batch; empty: all are equal."""
        return tuple(self.settings.get("shares", ()))

    def method(self, rate: float | None = None) -> Method:
        """Returns the run that has its curve.

        Args:
            rate: learning rate; None: the chosen one.
        """
        rate = _RATE[self.rate] if rate is None else rate
        facts = {"batch": self.batch, "rate": rate, "epochs": _EPOCHS}
        make = partial(_made, self.batch, rate)
        task = Task(name="digits, 4.7 MB", facts=facts, make=make, batch=digits)
        how = self.settings if self.settings["sync"] == "hap" else _WAITS
        return Method(name=self.name, task=task, settings=how)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What a run takes that ends with an epoch.

    Attributes:
        first_s: total time of a run of one epoch.
        epoch_s: what each further one adds.
        first_usd: the bill of a run of one epoch.
        epoch_usd: what each further one adds.
        step: prediction of the run of one epoch.
    """

    first_s: float
    epoch_s: float
    first_usd: float
    epoch_usd: float
    step: Prediction

    @classmethod
    def of(cls, one: Compared, store: str, workers: int) -> Pace:
        """Returns that of a method over a store, by the catalogue."""
        alone, two = (
            dayfly.predict(
                profile(store),
                workers=workers,
                batch_size=one.batch,
                epochs=epochs,
                **one.settings,
            ).prediction
            for epochs in (1, 2)
        )
        assert alone is not None
        assert two is not None
        return cls(
            first_s=alone.total_s,
            epoch_s=two.total_s - alone.total_s,
            first_usd=alone.cost_usd,
            epoch_usd=two.cost_usd - alone.cost_usd,
            step=alone,
        )

    def seconds(self, epochs: int) -> float:
        """Returns the total time of a run of so many epochs."""
        return self.first_s + (epochs - 1) * self.epoch_s

    def usd(self, epochs: int) -> float:
        """Returns the bill of a run of so many epochs."""
        return self.first_usd + (epochs - 1) * self.epoch_usd

    def epochs(self, usd: float) -> int:
        """Returns how many epochs so many dollars pay for."""
        return int((usd - self.first_usd) / self.epoch_usd + 1 + 1e-9)


def even(workers: int, batch: int) -> tuple[int, ...]:
    """Returns shares by which both roles of HAP end a step together over S3; empty: equal ones.

    Args:
        workers: of the run, one of which sums.
        batch: samples of all workers.
    """
    known = profile("s3")
    settings = Settings(workers=workers, memory_mib=MEMORY_MIB, imitate=PLATFORM, **_LAGS)
    return even_shares(known, settings, JobSpec.profiled(known, batch_size=batch))


def fasdl_batch(workers: int) -> int:
    """Returns FasDL's batch over S3: the largest with `OWN` samples of it for the aggregator."""
    found = batch = OWN * workers
    while len(share(batch, 0, workers, even(workers, batch))) <= OWN:
        found, batch = batch, batch + workers - 1  # another sample for each of the others
    return found


@cache
def methods(workers: int) -> tuple[Compared, ...]:
    """Returns all that are compared; the first is what the others stand beside."""
    batch, half, larger = OWN * workers, workers // 2, fasdl_batch(workers)

    def waits(name: str, aggregators: int | None, samples: int = batch) -> Compared:
        how: Json = {"sync": "bsp", "collective": "scatter-reduce"}
        if aggregators is not None:
            how |= {"collective": "k-reduce", "aggregators": aggregators}
        return Compared(name=name, batch=samples, settings=how, rate=_rate(how, samples > batch))

    def lags(name: str, shares: tuple[int, ...], samples: int = batch) -> Compared:
        how = {**_LAGS, "shares": shares} if shares else dict(_LAGS)
        return Compared(name=name, batch=samples, settings=how, rate=_rate(how, samples > batch))

    return (
        waits(BASE, None),
        waits("AllReduce", 1),
        *([waits(f"K-REDUCE, K {half}", half)] if half > 1 else []),
        lags("HAP, equal shares", ()),
        lags("HAP, shares auto", even(workers, batch)),
        lags("HAP, FasDL's batch", even(workers, larger), larger),
        waits("ScatterReduce, that batch", None, larger),
    )


def _rate(settings: Mapping[str, Any], larger: bool) -> str:
    return f"{settings['sync']}{', larger batch' * larger}"


def measure(runs: Runs, seeds: Sequence[int]) -> list[Json]:
    """A row a store and method."""
    compared = methods(runs.workers)
    came: dict[str, list[Trained]] = {one.name: [] for one in compared}
    for seed in seeds:
        for one in compared:
            came[one.name].append(one.method().train(runs, seed))
    rows = []
    for store in STORES:
        paces = {one.name: Pace.of(one, store, runs.workers) for one in compared}
        rows += [_row(one, store, paces, came) for one in compared]
    return rows


def choose(runs: Runs, seeds: Sequence[int]) -> list[Json]:
    """Learning rates of those that wait and of HAP, with either batch; a row each, over S3."""
    rows = []
    for one in {one.rate: one for one in reversed(methods(runs.workers))}.values():
        pace = Pace.of(one, "s3", runs.workers)
        for rate in _RATES:
            came = [one.method(rate).train(runs, seed) for seed in seeds]
            row = _row(one, "s3", {one.name: pace}, {one.name: came})
            rows.append(row | {"method": f"{one.rate}: {rate:g}"})
    return rows


def _row(
    one: Compared,
    store: str,
    paces: Mapping[str, Pace],
    came: Mapping[str, Sequence[Trained]],
) -> Json:
    """A method beside ScatterReduce, if that is there; curves are medians of the seeds."""
    pace, ours = paces[one.name], came[one.name]
    of_seeds: list[Json] = []
    for at, run in enumerate(ours):
        epoch = run.reached(TARGET)
        found: Json = {"best": run.best, "accuracy": run.accuracies[-1], "epoch": epoch}
        took = None if epoch is None else (pace.seconds(epoch), pace.usd(epoch))
        if took is not None:
            found |= {"seconds": took[0], "usd": took[1]}
        plain = came[BASE][at].reached(TARGET) if BASE in came else None
        if plain is not None:
            base = paces[BASE]
            paid = pace.epochs(base.usd(plain))
            trained = 1 <= paid <= len(run.losses)  # beyond them nothing is known of its loss
            found["then"] = min(run.losses[:paid]) if trained else None
            if took is not None:
                found["sooner"] = base.seconds(plain) / took[0]
                found["cheaper"] = base.usd(plain) / took[1]
        of_seeds.append(found)
    step, volume = pace.step, pace.step.step_volume
    row: Json = {
        "method": one.name,
        "store": store,
        "batch": one.batch,
        "shares": list(one.shares),
        "step_s": step.step_s,
        "requests": volume.puts + volume.gets,
        "epochs_s": [pace.seconds(n) for n in range(1, _EPOCHS + 1)],
        "epochs_usd": [pace.usd(n) for n in range(1, _EPOCHS + 1)],
        "losses": [median(of) for of in zip(*(run.losses for run in ours), strict=True)],
        "accuracies": [median(of) for of in zip(*(run.accuracies for run in ours), strict=True)],
        "seeds": len(ours),
        "reached": sum(found["epoch"] is not None for found in of_seeds),
        "of_seeds": of_seeds,
    }
    for name in dict.fromkeys(key for found in of_seeds for key in found):
        values = [found[name] for found in of_seeds if found.get(name) is not None]
        row |= spread(name, values) if values else {}
    return row


def table(rows: Sequence[Mapping[str, Any]], workers: int) -> Table:
    """For a person."""
    learnt = columns(["method"], ["batch", "own", "least loss", "accuracy", "epoch", "came"])
    taken = columns(["method"], ["step ms", "s", "sooner", "m$", "cheaper", "loss then"])
    for row in rows:
        if row["store"] != rows[0]["store"]:
            continue
        own = len(share(row["batch"], 0, workers, tuple(row["shares"])))
        reached = f"{row['reached']} of {row['seeds']}"
        epoch = f"{row['epoch']:g}" if "epoch" in row else ""
        cells = [row["method"], str(row["batch"]), str(own), number(row["best"], 4)]
        learnt.add_row(*cells, number(100 * row["accuracy"], 1), epoch, reached)
    for store in dict.fromkeys(row["store"] for row in rows):
        taken.add_row(f"[bold]{store}[/bold]")
        for row in rows:
            if row["store"] == store:
                usd = None if "usd" not in row else 1e3 * row["usd"]
                taken.add_row(
                    row["method"],
                    number(1e3 * row["step_s"], 0),
                    number(row.get("seconds"), 1),
                    shown(row, "sooner", 2)[0] if "sooner" in row else "",
                    number(usd, 2),
                    shown(row, "cheaper", 2)[0] if "cheaper" in row else "",
                    number(row.get("then"), 4),
                )
    return framed(
        f"a CNN of 4.7 MB over the digits, {workers} workers of {MEMORY_MIB} MiB, {_EPOCHS} "
        f"epochs; medians of {rows[0]['seeds']} seeds",
        learnt,
        "own: samples of rank 0, which aggregates; epoch: the first whose "
        f" validation loss is at most {TARGET:g}, of the seeds that came",
        taken,
        f"predicted for {PLATFORM}, up to that loss; sooner, cheaper: than {BASE}; loss then: for "
        f"the dollars with which {BASE} came there",
    )
