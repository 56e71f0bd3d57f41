"""What short runs to one loss say: epochs to it, samples beside bsp's, and S(B).

    losses of each seed  --->  epochs to the target  --->  f, with its interval  --->  S(B)

Of f and S(B) see `dayfly.planning.efficiency`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from dayfly.planning.efficiency import Efficiency, NoiseFit, SeedCurve
from dayfly.specs.methods import Method

#: 90% of values of Student's t lie within, by degrees of freedom; of more, the last.
_T_90 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833)


def epochs_to(losses: Sequence[float | None], target: float) -> float | None:
    """Returns the epochs after which the loss first was at a target; None: it never was.

    Between the last validation above it and the first one at it, the loss's logarithm is taken to
    fall evenly; nobody knows where the first epoch began, so it counts whole.

    Args:
        losses: of the validation after each epoch; None: NaN or infinite.
        target: of them.
    """
    for at, loss in enumerate(losses):
        if loss is None or loss > target:
            continue
        before = losses[at - 1] if at else None
        if before is None or min(loss, target) <= 0 or loss == target:
            return float(at + 1)
        return at + math.log(before / target) / math.log(before / loss)
    return None


def measured_efficiency(
    method: Method,
    batch_size: int,
    workers: int,
    curves: Sequence[SeedCurve],
    reference: Sequence[SeedCurve],
    most_epochs: int,
) -> Efficiency:
    """Returns f by the runs of several seeds, each beside bsp's of the same seed.

    f is the geometric mean; its interval is of Student's t, of the logarithms. If a seed did not
    reach the target, f is larger than the mean with all the epochs that the seed could have.

    Args:
        method: of the runs.
        batch_size: of the runs.
        workers: of the runs.
        curves: of the runs.
        reference: bsp's at the job's batch size, of the same seeds.
        most_epochs: that runs could have.
    """
    of_bsp = [one.epochs for one in reference]
    assert all(of_bsp), "the target is what bsp reached with each seed"
    bsp = {one.seed: one.epochs or math.inf for one in reference}
    ratios = [(one.epochs or most_epochs) / bsp[one.seed] for one in curves]
    logs = [math.log(one) for one in ratios]
    mean = fmean(logs)
    made = Efficiency(
        method=str(method),
        batch_size=batch_size,
        samples=None,
        low=math.exp(mean),
        how="measured",
        workers=workers,
        curves=tuple(curves),
    )
    if made.reached < len(curves):
        return made
    if len(logs) > 1:
        variance = sum((one - mean) ** 2 for one in logs) / (len(logs) - 1)
        far = _T_90[min(len(logs) - 1, len(_T_90)) - 1] * math.sqrt(variance / len(logs))
        low, high = math.exp(mean - far), math.exp(mean + far)
    else:
        # Within the epochs whose validations lie around it.
        mine, others = curves[0].epochs or 0.0, reference[0].epochs or 1.0
        low = max(1.0, math.ceil(mine) - 1) / math.ceil(others)
        high = math.ceil(mine) / max(1.0, math.ceil(others) - 1)
    if curves is reference:
        low = high = 1.0
    return replace(made, samples=math.exp(mean), low=low, high=high)


def noise_fit(batches: Mapping[int, float], reference: int) -> NoiseFit | None:
    """Returns S(B) through what was measured, by least squares of f's relative errors.

    f(B) - 1 = (B - B_job) x, with x = 1 / (B_job + B_noise), from 0 to 1 / B_job: that is one
    coefficient, as f is 1 at B_job.

    Args:
        batches: f by batch size, of those that reached the target.
        reference: B_job.
    """
    others = {batch: f for batch, f in batches.items() if batch != reference}
    if not others:
        return None
    over = sum(((b - reference) / f) ** 2 for b, f in others.items())
    x = sum((b - reference) * (f - 1) / f**2 for b, f in others.items()) / over
    x = min(max(x, 0.0), 1 / reference)
    found = NoiseFit(noise=1 / x - reference if x else None, error=0.0, most=max(batches))
    errors = [(found.samples(b, reference) / f - 1) ** 2 for b, f in others.items()]
    return replace(found, error=math.sqrt(fmean(errors)))
