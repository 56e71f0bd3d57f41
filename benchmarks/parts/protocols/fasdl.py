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

Sums of all that wait have the same bits, so one run a seed has the curve of all of them. A budget
is what so many epochs of ScatterReduce take, in dollars or seconds, over the same store: the others
have as many epochs as that buys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from torch import nn

import dayfly
from benchmarks.parts.protocols.beside import Method
from benchmarks.parts.protocols.hybrid import digits, sgd
from benchmarks.parts.protocols.trained import Task
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
#: Epochs of ScatterReduce that are the budgets, and in what they are counted: in each alike.
BUDGETS = (2, 3, 5)
COUNTED = ("epochs", "seconds", "usd")
_WAITS = {"sync": "bsp", "collective": "k-reduce", "aggregators": 1}
_LAGS = {**_WAITS, "sync": "hap"}
BASE = "ScatterReduce"


@dataclass(frozen=True, slots=True)
class How:
    """Settings of SGD."""

    rate: float
    momentum: float


#: By curve; chosen by `fasdl_chosen.choose`, with other seeds than are reported.
CHOSEN = {
    "all wait": How(0.02, 0.9),
    "all wait, larger batch": How(0.05, 0.9),
    "HAP, equal shares": How(0.1, 0.0),
    "HAP, shares auto": How(0.1, 0.0),
    "HAP, FasDL's batch": How(0.02, 0.9),
}


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


def job(batch: int, how: How, epochs: int) -> Job:
    """What is trained.

    Args:
        batch: samples of all workers.
        how: settings of SGD.
        epochs: of the run.
    """
    return Job(
        model=cnn,
        data="digits",
        loss=nn.functional.cross_entropy,
        optimizer=partial(sgd, how.rate, momentum=how.momentum),
        batch_size=batch,
        epochs=epochs,
    )


def _made(batch: int, how: How, epochs: int, _: Path) -> Job:
    return job(batch, how, epochs)


@cache
def profile(store: str) -> Profile:
    """Returns the job's profile on the platform over a store of `STORES`, from the catalogue."""
    return catalogued_profile(
        job(OWN, How(0.01, 0.9), epochs=1),
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
        curve: name in `CHOSEN`: methods with the same one have the same losses by epoch.
    """

    name: str
    batch: int
    settings: Mapping[str, Any]
    curve: str

    @property
    def lags(self) -> bool:
        """Whether workers that do not sum go on without waiting."""
        return bool(self.settings["sync"] == "hap")

    @property
    def shares(self) -> tuple[int, ...]:
        """Each worker's share of the batch; empty: all are equal."""
        return tuple(self.settings.get("shares", ()))

    def method(self, epochs: int) -> Method:
        """Returns the run that has its curve, with the settings that were chosen.

        Args:
            epochs: of the run.
        """
        how = CHOSEN[self.curve]
        facts = {"batch": self.batch, **asdict(how), "epochs": epochs}
        make = partial(_made, self.batch, how, epochs)
        task = Task(name="digits, 4.7 MB", facts=facts, make=make, batch=digits)
        return Method(
            name=self.name, task=task, settings=self.settings if self.lags else dict(_WAITS)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What a run takes that ends with an epoch; each by the names of `COUNTED`.

    Attributes:
        first: of a run of one epoch: itself, its total time, its bill.
        each: what a further epoch adds.
        step: prediction of the run of one epoch.
    """

    first: Mapping[str, float]
    each: Mapping[str, float]
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
        first = {"epochs": 1.0, "seconds": alone.total_s, "usd": alone.cost_usd}
        both = {"epochs": 2.0, "seconds": two.total_s, "usd": two.cost_usd}
        return cls(first=first, each={of: both[of] - first[of] for of in COUNTED}, step=alone)

    def takes(self, of: str, epochs: int) -> float:
        """Returns what a run of so many epochs takes of something in `COUNTED`."""
        return self.first[of] + (epochs - 1) * self.each[of]

    def buys(self, of: str, amount: float) -> int:
        """Returns how many whole epochs an amount of something in `COUNTED` pays for."""
        return max(0, int((amount - self.first[of]) / self.each[of] + 1 + 1e-9))


@cache
def paces(store: str, workers: int) -> Mapping[str, Pace]:
    """Returns the pace of each method over a store, by name."""
    return {one.name: Pace.of(one, store, workers) for one in methods(workers)}


def bought(name: str, store: str, workers: int, of: str, budget: int) -> int:
    """Returns epochs that a method has for what ScatterReduce's take over the same store.

    Args:
        name: of the method.
        store: of `STORES`.
        workers: of the run.
        of: what is equal, of `COUNTED`.
        budget: epochs of ScatterReduce.
    """
    here = paces(store, workers)
    return here[name].buys(of, here[BASE].takes(of, budget))


def curves(workers: int) -> Mapping[str, list[Compared]]:
    """Returns the methods that share each curve."""
    return {
        curve: [one for one in methods(workers) if one.curve == curve]
        for curve in dict.fromkeys(one.curve for one in methods(workers))
    }


def most_epochs(workers: int) -> Mapping[str, int]:
    """Returns epochs of each curve that the largest budget buys, of whatever and wherever."""
    return {
        curve: max(
            bought(one.name, store, workers, of, BUDGETS[-1])
            for one in sharing
            for store in STORES
            for of in COUNTED
        )
        for curve, sharing in curves(workers).items()
    }


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
        curve = "all wait" + ", larger batch" * (samples > batch)
        return Compared(name=name, batch=samples, settings=how, curve=curve)

    def lags(name: str, shares: tuple[int, ...], samples: int = batch) -> Compared:
        how = {**_LAGS, "shares": shares} if shares else dict(_LAGS)
        return Compared(name=name, batch=samples, settings=how, curve=name)

    return (
        waits(BASE, None),
        waits("AllReduce", 1),
        *([waits(f"K-REDUCE, K {half}", half)] if half > 1 else []),
        lags("HAP, equal shares", ()),
        lags("HAP, shares auto", even(workers, batch)),
        lags("HAP, FasDL's batch", even(workers, larger), larger),
        waits("ScatterReduce, that batch", None, larger),
        waits("AllReduce, that batch", 1, larger),
    )
