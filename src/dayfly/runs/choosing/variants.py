"""Variants of a run that reach one loss: training methods and batch sizes, each with its epochs.

    --sync bsp,local-sgd:8  --batch-size 64,256         4 variants
         |
         v
    samples of each, relative to bsp's at the job's batch size (`planning.efficiency`)
         |
         v
    epochs of each       as many more as it takes more samples; each is a problem of its own

So all plans of a front are of one loss. What was not measured is assumed to take as many samples,
and says so; what did not reach the loss when it was measured is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from dayfly.errors import RequestError
from dayfly.planning.efficiency import Efficiencies, Efficiency, given_efficiency
from dayfly.planning.profile import Profile
from dayfly.runs.choosing.candidate import Candidate
from dayfly.runs.choosing.query import PlanQuery, frees_batch
from dayfly.runs.plans import JobSpec
from dayfly.specs.methods import BSP, Method


@dataclass(frozen=True, slots=True, kw_only=True)
class Variants:
    """What a choice is among, of methods and batch sizes.

    Attributes:
        asked: of each variant, what the planners are asked.
        notes: what a person should know, a sentence each.
        known: of samples.
        epochs: of bsp at the job's batch size.
    """

    asked: tuple[PlanQuery, ...]
    notes: tuple[str, ...]
    known: Efficiencies
    epochs: int

    def of(self, candidate: Candidate) -> Candidate | None:
        """Returns a candidate with its efficiency, and its epochs by it; None: it did not reach
        the loss.

        Args:
            candidate: of any of the variants.
        """
        wanted = candidate.wanted
        found = self.known.of(Method.of(candidate.settings), wanted.batch_size)
        if found.samples is None:
            return None
        epochs = found.epochs(self.epochs, self.known.tolerance)
        part = epochs / wanted.epochs
        return replace(
            candidate,
            efficiency=found,
            wanted=replace(wanted, epochs=epochs),
            seconds=candidate.seconds * part,
            usd=candidate.usd * part,
        )


def variants(profiles: Sequence[Profile], asked: PlanQuery) -> Variants:
    """Returns each method at each batch size, with its epochs; of hap with an open number of
    aggregators each number of which the samples are known, and the others.

    Args:
        profiles: of the job; the first that has a convergence says it for all.
        asked: what the choice is among.

    Raises:
        RequestError: none of them reaches the loss of bsp, or the profile says no batch size.
    """
    first = profiles[0]
    has = next((one for one in profiles if one.convergence is not None), first)
    said = asked.batch_size or next(iter(asked.batch_sizes), None)
    if first.batch_size is not None and asked.batch_size is None:
        said = None  # the profile says the job's
    wanted = JobSpec.profiled(first, epochs=asked.epochs, batch_size=said)
    # A curve is of the batch that is planned.
    job = asked.batch_size if asked.reaching is not None else first.batch_size
    job = job or wanted.batch_size
    given = tuple(given_efficiency(text, job) for text in asked.efficiencies)
    known = Efficiencies(batch_size=job, convergence=has.convergence, given=given)
    each: list[PlanQuery] = []
    found: list[Efficiency] = []
    batches = dict.fromkeys(asked.batch_sizes or (asked.batch_size,))
    _check_given(known, asked, {one or wanted.batch_size for one in batches})
    for batch in batches:
        for method in asked.ways:
            its = known.each(method, batch or wanted.batch_size)
            ways = [Method.parse(one.method, planned=True) for one in its]
            apart = tuple(way.aggregators for way in ways[:-1] if way.aggregators is not None)
            found += its
            for way, one in zip(ways, its, strict=True):
                if one.samples is None or not (way == method or _is_more(way, asked)):
                    continue
                variant = asked.of(
                    way,
                    batch_size=batch,
                    batch_sizes=(),
                    apart=apart,
                    efficiencies=(),
                    epochs=one.epochs(wanted.epochs, known.tolerance),
                    most_batch_size=asked.most_batch_size if frees_batch(method) else None,
                )
                each.append(variant)
    notes = _words(found, known, wanted.epochs)
    if not each:
        raise RequestError("no plan: " + "; ".join(notes))
    notes += _more(known, asked)
    kept = [str(method) for method in asked.ways if not frees_batch(method)]
    if asked.most_batch_size is not None and kept:
        notes.append(
            f"--most-batch-size frees the batch of bsp and hap; of {', '.join(kept)} it is "
            f"{' or '.join(str(one or wanted.batch_size) for one in batches)}: give --batch-size "
            "N,N to choose among others"
        )
    if wanted.batch_per_worker is not None and asked.workers > 1:
        notes.append(
            "the batch follows the workers, and all assume as many samples, which nobody measured"
        )
    each = [_bounded(one, known, notes) for one in each]
    return Variants(asked=tuple(each), notes=tuple(notes), known=known, epochs=wanted.epochs)


def _is_more(way: Method, asked: PlanQuery) -> bool:
    """Whether plans of one number of aggregators, with others beside them, are not asked for."""
    return way not in asked.ways and (way.aggregators or 0) < asked.workers


def _check_given(known: Efficiencies, asked: PlanQuery, batches: AbstractSet[int]) -> None:
    """Raises RequestError for a given efficiency that no plan of these batch sizes has."""
    most = 0
    if any(map(frees_batch, asked.ways)):
        most = asked.most_batch_size or 0
    if any(method.protocol.staleness for method in asked.ways):
        most = max(most, *batches)  # the batch of hap is free up to them
    for method, batch, samples in known.given:
        if (method, batch) == (BSP, known.batch_size) and samples != 1:
            raise RequestError(
                f"--efficiency {method}@{batch}={samples:g}: all is compared with that, which has "
                "1: give a method's, or another batch size's such as "
                f"@{2 * known.batch_size}={samples:g}"
            )
        if batch not in batches and batch > most and batch != known.batch_size:
            raise RequestError(
                f"--efficiency {method}@{batch}={samples:g}: no plan has batch {batch}: add it to "
                "--batch-size, or leave it out"
            )


def _words(found: Sequence[Efficiency], known: Efficiencies, epochs: int) -> list[str]:
    """What a person should know of variants' samples; nothing of bsp at the job's batch size."""
    bsp = f"bsp at batch {known.batch_size}"
    assumed = [one for one in found if one.how == "assumed"]
    missed = [one for one in found if one.samples is None]
    notes = []
    for one in found:
        if one in (*assumed, *missed) or one.name == f"{BSP}@{known.batch_size}":
            continue
        needs = one.epochs(epochs, known.tolerance)
        within = f", as all within {known.tolerance:.0%}" if needs == epochs else ""
        notes.append(f"{one.name}: {needs} epochs for {epochs} of {bsp}{within}; {one.words}")
    for samples in dict.fromkeys(one.samples for one in assumed):
        names = ", ".join(one.name for one in assumed if one.samples == samples)
        many = "as many samples as" if samples == 1 else f"{samples:.3g} times the samples of"
        notes.append(
            f"{names}: assumes {many} {bsp}, which nobody measured: profile the job with "
            "--convergence, or give --efficiency"
        )
    if missed:
        names = ", ".join(
            f"{one.name} (above {one.low or 1:.3g} times the samples)" for one in missed
        )
        notes.append(f"left out, as they do not come to the loss of {bsp}: {names}")
    return notes


def _more(known: Efficiencies, asked: PlanQuery) -> list[str]:
    """What was measured and is not looked at."""
    if known.convergence is None:
        return []
    if known.convergence.batch_size != known.batch_size:
        return [
            f"the profile's convergence is beside batch {known.convergence.batch_size}, and "
            f"nothing is known beside batch {known.batch_size}"
        ]
    looked = [BSP, *asked.ways]
    reached = [one for one in known.convergence.measured if one.samples is not None]
    methods = [
        one.method
        for one in reached
        if not any(method.allows(Method.parse(one.method)) for method in looked)
    ]
    batches = [one.batch_size for one in reached if one.method == str(BSP)]
    batches = [one for one in batches if one != known.batch_size]
    found = []
    if methods:
        found.append(f"--sync {','.join(dict.fromkeys(('bsp', *methods)))}")
    if batches and not asked.batch_sizes and asked.most_batch_size is None:
        found.append(f"--batch-size {','.join(map(str, (known.batch_size, *batches)))}")
    return [f"the profile has more measured, to choose among with {' and '.join(found)}"] * bool(
        found
    )


def _bounded(asked: PlanQuery, known: Efficiencies, notes: list[str]) -> PlanQuery:
    """With FasDL's largest batch that still converges as well, if it was measured."""
    most, found = asked.most_batch_size, known.convergence
    if most is None:
        return asked
    of_job = found is not None and found.batch_size == known.batch_size
    if found is not None and of_job and found.largest_batch >= most:
        return asked
    if found is None or not of_job or found.worse_batch is None:
        largest = found.largest_batch if found is not None and of_job else known.batch_size
        above = f"above {largest} " if largest > known.batch_size else ""
        notes.append(
            f"batches {above}up to {most} assume as many samples as batch {known.batch_size}, "
            "which nobody measured: profile the job with --convergence bsp"
        )
        return asked
    notes.append(
        f"the batch is free up to {found.largest_batch}, the largest that was measured to converge "
        f"as well, within {found.tolerance:.0%}, as batch {found.worse_batch} does not: larger "
        "ones are planned with --batch-size"
    )
    return replace(asked, most_batch_size=found.largest_batch)
