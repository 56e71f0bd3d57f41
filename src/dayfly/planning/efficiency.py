"""Statistical efficiency: how many samples a method takes to the same loss, beside bsp.

    f        samples to the target over those of bsp at the job's batch size; bsp itself has 1.
             Its inverse is the statistical efficiency (Pollux, OSDI 2021, equation 7).
    S(B)     steps to the target at batch size B = S_min (1 + B_noise / B)       (McCandlish and
             others, arXiv 1812.06162, equation 2.7); so samples are S_min (B + B_noise), and
             f(B) = (B + B_noise) / (B_job + B_noise)

       f |                  /
         |               * /     below B_noise a larger batch takes fewer steps for almost the same
         |             /         samples; far above it, as many steps, each of more samples
     1+t |- - - - -*- - -
       1 |*----*---^             the largest batch that still converges as well: f <= 1 + t, with a
         |_________|__________B  tolerance t that is stated (FasDL, section VI-A: B^g_max)

A run to the same loss has f times the epochs, rounded up, as a run ends after a whole epoch. Within
the tolerance f counts as 1: so exact are measurements on a few seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from dayfly.dataclass_json import ABOVE_0, Count, Positive, Real
from dayfly.errors import RequestError
from dayfly.specs.methods import BSP, Method, method_and_batch

#: What samples to the target may be more, so that a batch or a method converges as well, unless
#: said otherwise.
TOLERANCE = 0.1
#: How a number of samples was had: `measured` on short runs, `fitted` by S(B), `given` by hand,
#: `combined` of a method's and a batch size's, `assumed`, which is as many as bsp's, or that of the
#: `reference`, bsp at the job's batch size.
How = Literal["measured", "fitted", "given", "combined", "assumed", "reference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedCurve:
    """A short run of one seed.

    Args:
        seed: of the run.
        losses: of the validation after each epoch; null: NaN or infinite.
        epochs: to the target, between two validations on a straight line of the loss's logarithm;
            None: the run did not reach it.
    """

    seed: Annotated[int, Real]
    losses: tuple[Annotated[float, Real] | None, ...]
    epochs: Positive | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """What a method takes to the target, relative to bsp at the job's batch size.

    Args:
        method: its name (`dayfly.specs.methods`).
        batch_size: samples of a step, all workers'.
        samples: f; None: the target was not reached by all seeds.
        low: lower end of its interval, which has 90% by the seeds; of one seed, what the epochs
            allow. If the target was not reached: f is larger than that.
        high: upper end; None: not known.
        how: it was had.
        workers: of the short runs; None: there were none.
        curves: of the short runs, one a seed.
    """

    method: str
    batch_size: Count
    samples: Positive | None
    low: float | None = None
    high: float | None = None
    how: How
    workers: Count | None = None
    curves: tuple[SeedCurve, ...] = ()

    @property
    def reached(self) -> int:
        """Seeds that reached the target."""
        return sum(one.epochs is not None for one in self.curves)

    @property
    def name(self) -> str:
        """Of method and batch size, as `--efficiency` has it."""
        return f"{self.method}@{self.batch_size}"

    @property
    def short(self) -> str:
        """How many samples it takes, for tables: a question mark where nobody measured it."""
        return f"x {self.samples or 1:.3g}{'?' if self.how == 'assumed' else ''}"

    @property
    def words(self) -> str:
        """How many samples it takes, and how that is known."""
        if self.samples is None:
            return f"more than {self.low or 1:.3g} times the samples ({self.how}; not reached)"
        sure = ""
        if self.low is not None and self.high is not None:
            sure = f", {self.low:.3g} to {self.high:.3g}"
        seeds = f" on {len(self.curves)} seeds" if len(self.curves) > 1 else ""
        by = f" with {self.workers} workers" if self.workers and self.method != str(BSP) else ""
        return f"{self.samples:.3g} times the samples ({self.how}{seeds}{by}{sure})"

    def epochs(self, epochs: int, tolerance: float = TOLERANCE) -> int:
        """Returns the whole epochs after which a run is at the loss of bsp after `epochs`.

        Args:
            epochs: of bsp at the job's batch size.
            tolerance: f within it counts as 1.

        Raises:
            ValueError: nobody knows, as the target was not reached.
        """
        if self.samples is None:
            raise ValueError(f"{self.name} did not reach the target")
        if 1 / (1 + tolerance) <= self.samples <= 1 + tolerance:
            return epochs
        return max(1, math.ceil(round(epochs * self.samples, 6)))


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFit:
    """The curve S(B) = S_min (1 + B_noise / B), fitted to the batch sizes that reached the target.

    Args:
        noise: B_noise, in samples; None: infinite, larger batches took no more samples.
        error: root of the mean squared relative error of f.
        most: the largest batch size that was fitted.
    """

    noise: float | None
    error: float
    most: Count

    def samples(self, batch_size: float, reference: float) -> float:
        """Returns f.

        Args:
            batch_size: B.
            reference: B_job.
        """
        if self.noise is None:
            return 1.0
        return (batch_size + self.noise) / (reference + self.noise)


@dataclass(frozen=True, slots=True, kw_only=True)
class Convergence:
    """What short runs to one loss say of methods and batch sizes; of a profile.

    Args:
        batch_size: of bsp, with which all is compared: the job's.
        epochs: of that bsp.
        target_loss: of the validation, that each of its seeds reached.
        tolerance: of f, that counts as converging as well.
        most_epochs: after which runs that had not reached it were ended.
        measured: of each method and batch size, bsp at the job's first.
        left_out: names of what was not run to its end, each with the reason.
        fit: S(B); None: fewer than two batch sizes reached the target.
        billed_s: of all short runs' functions.
        cost_usd: of all short runs, under `price_list`.
        price_list: the platform whose prices count.
        took_s: of measuring.
    """

    batch_size: Count
    epochs: Count
    target_loss: Real
    tolerance: Annotated[float, ABOVE_0] = TOLERANCE
    most_epochs: Count
    measured: tuple[Efficiency, ...]
    left_out: Mapping[str, str]
    fit: NoiseFit | None = None
    billed_s: float = 0.0
    cost_usd: float = 0.0
    price_list: str = ""
    took_s: float = 0.0

    @property
    def _larger(self) -> list[Efficiency]:
        """Bsp at batch sizes above the job's, by size."""
        bsp = (one for one in self.measured if one.method == str(BSP))
        larger = (one for one in bsp if one.batch_size > self.batch_size)
        return sorted(larger, key=lambda one: one.batch_size)

    @property
    def missed_batch(self) -> Efficiency | None:
        """Bsp at the smallest batch size above the job's that did not reach the target."""
        return next((one for one in self._larger if one.samples is None), None)

    @property
    def worse_batch(self) -> int | None:
        """The smallest batch size above the job's at which bsp does not converge as well."""
        most = 1 + self.tolerance
        worse = (one for one in self._larger if one.samples is None or one.samples > most)
        return next((one.batch_size for one in worse), None)

    @property
    def largest_batch(self) -> int:
        """The largest batch size of bsp that converges as well: it and all smaller measured ones,
        from the job's on, take samples within the tolerance."""
        worse = self.worse_batch or math.inf
        as_well = [one.batch_size for one in self._larger if one.batch_size < worse]
        return max(as_well, default=self.batch_size)


@dataclass(frozen=True, kw_only=True)
class Efficiencies:
    """What is known of all methods and batch sizes of a job: given, measured, or else assumed.

    Args:
        batch_size: of bsp, with which all is compared.
        convergence: that a profile has; None: nothing was measured.
        given: by hand; before what was measured.
    """

    batch_size: int
    convergence: Convergence | None = None
    given: tuple[tuple[Method, int, float], ...] = ()

    @property
    def tolerance(self) -> float:
        """Of f, that counts as 1."""
        return TOLERANCE if self._measured is None else self._measured.tolerance

    @cached_property
    def _known(self) -> Mapping[tuple[Method, int], Efficiency]:
        measured = () if self._measured is None else self._measured.measured
        known = {(Method.parse(one.method), one.batch_size): one for one in measured}
        for method, batch, samples in self.given:
            known[method, batch] = _had("given", method, batch, samples)
        return known

    @property
    def _measured(self) -> Convergence | None:
        """What was measured beside that bsp."""
        found = self.convergence
        return found if found is not None and found.batch_size == self.batch_size else None

    def of(self, method: Method, batch_size: int) -> Efficiency:
        """Returns what a method takes at a batch size.

        Args:
            method: as it is run.
            batch_size: samples of a step, all workers'.
        """
        if (found := self._known.get((method, batch_size))) is not None:
            return found
        if method == BSP:
            return self._of_batch(batch_size)
        own, batch = self._known.get((method, self.batch_size)), self.of(BSP, batch_size)
        how: How = "assumed" if own is None or batch.how == "assumed" else "combined"
        each = (own or _had(how, method, self.batch_size, 1.0)), batch
        least = math.prod(one.samples or one.low or 1.0 for one in each)
        if any(one.samples is None for one in each):
            return _had("combined", method, batch_size, None, low=least)
        workers = None if own is None else own.workers
        return _had(how, method, batch_size, least, workers=workers)

    def each(self, method: Method, batch_size: int) -> list[Efficiency]:
        """Returns what is known of each method that one with an open number of aggregators allows,
        and last what the others take; of another method what it takes.

        Args:
            method: as it is asked for.
            batch_size: samples of a step, all workers'.
        """
        some = dict.fromkeys(one for one, _ in self._known if method.allows(one) and one != method)
        return [self.of(one, batch_size) for one in (*some, method)]

    def _of_batch(self, batch_size: int) -> Efficiency:
        if batch_size == self.batch_size:
            return _had("reference", BSP, batch_size, 1.0, low=1.0, high=1.0)
        found = self._measured
        missed = None if found is None else found.missed_batch
        if missed is not None and batch_size >= missed.batch_size:
            return _had("fitted", BSP, batch_size, None, low=missed.low)
        if found is None or found.fit is None or batch_size < self.batch_size:
            return _had("assumed", BSP, batch_size, 1.0)
        fit, most = found.fit, found.fit.most
        if batch_size > most:
            return _had("fitted", BSP, batch_size, None, low=fit.samples(most, self.batch_size))
        samples = fit.samples(batch_size, self.batch_size)
        if batch_size <= found.largest_batch:
            samples = min(samples, 1 + found.tolerance)
        return _had("fitted", BSP, batch_size, samples)


def _had(
    how: How, method: Method, batch_size: int, samples: float | None, **more: Any
) -> Efficiency:
    return Efficiency(method=str(method), batch_size=batch_size, samples=samples, how=how, **more)


def given_efficiency(text: str, batch_size: int) -> tuple[Method, int, float]:
    """Returns method, batch size and f of what `--efficiency` takes.

    Args:
        text: such as `nesterov:20=1.3` or `@512=1.2`.
        batch_size: of a name without one.

    Raises:
        RequestError: it is no such text.
    """
    name, equals, value = text.rpartition("=")
    try:
        samples = float(value) if equals else math.nan
    except ValueError:
        samples = math.nan
    if not 0 < samples < math.inf:
        raise RequestError(
            f"--efficiency {text!r}: give a method and how many times the samples of bsp it takes, "
            "such as local-sgd:8=1.3, or @512=1.2 for a batch size"
        )
    method, batch = method_and_batch(name)
    return method, batch or batch_size, samples
