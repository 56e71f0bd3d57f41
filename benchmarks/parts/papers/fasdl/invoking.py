"""FasDL's section VII: hierarchical invocation, and how functions that start together are invoked.

FasDL follows the hierarchical invocation of LambdaML, "to handle the limited lifetime of the Lambda
function": a worker whose time runs out saves its model and invokes a function in its place, and
that one loads the model. The paper prints no number of it. What is assumed here:

    hand-over   LambdaML's: the model up, a call, a cold start and the model down, one after the
                other, as the other workers wait for the step's sum; no time to load libraries.
                dayfly's: successors start while their predecessors train; all workers write the
                checkpoint together, each a W-th of it, and then each successor loads all of it.
                Neither has the optimizer's state, which makes both longer
    cold start  the catalogue's
    call        50 ms for one invocation, until the platform has taken it; 10 and 200 ms beside it
    Lambda      starts 1000 functions at once, and 1000 more every 10 s
                (docs.aws.amazon.com/lambda, scaling behavior)
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.parts.papers.fasdl.costs import USUAL
from benchmarks.parts.papers.fasdl.workloads import WORKLOADS, Workload
from benchmarks.parts.papers.figure import Fact, Figure, Panel, Series
from benchmarks.parts.papers.rows import given, platform
from dayfly.specs.invoking import Invoking

_CALL_S = 0.05
_OTHER_CALLS_S = (0.01, 0.2)
_AT_ONCE = 32
#: Of a tree, the best of them counts.
_FAN_OUTS = (2, 4, 8, 16, 32)
_SHOWN = tuple(10 * 2**power for power in range(11))
_MOST = max(_SHOWN)
#: Functions that Lambda starts at once, and a second after that.
_BURST, _MORE_PER_S = 1000, 100.0


def _cold_start_s() -> float:
    return given(platform("aws-lambda").cold_start_s, "cold start of aws-lambda")


def _last_s(how: Invoking) -> Sequence[float]:
    """When the last of 1, 2, ... functions is invoked."""
    found: list[float] = []
    for one in how.invoked_s([_cold_start_s()] * _MOST):
        found.append(max(one, found[-1]) if found else one)
    return found


def _ways(call_s: float) -> dict[str, Sequence[float]]:
    """Seconds by the number of functions, less one."""
    trees = [_last_s(Invoking(call_s=call_s, fan_out=fan_out)) for fan_out in _FAN_OUTS]
    return {
        "calls one by one": _last_s(Invoking(call_s=call_s)),
        f"{_AT_ONCE} calls at once": _last_s(Invoking(call_s=call_s, at_once=_AT_ONCE)),
        "a tree, the best fan-out": [min(each) for each in zip(*trees, strict=True)],
    }


def _sooner_from(tree: Sequence[float], other: Sequence[float]) -> str:
    """From how many functions on a tree is sooner, whatever their number."""
    later = [n for n, (a, b) in enumerate(zip(tree, other, strict=True), 1) if a >= b]
    return "never" if later and later[-1] == _MOST else str(max(later, default=0) + 1)


def _lambda_s(functions: int) -> float:
    return max(0.0, (functions - _BURST) / _MORE_PER_S)


def _handed_over_s(load: Workload) -> tuple[float, float]:
    """Seconds of training that the end of a lifetime costs: LambdaML's way, and dayfly's."""
    size, workers = load.size_bytes, load.theirs.workers
    model_s, shard_s = (one / USUAL.throughput(one, "S3") for one in (size, size / workers))
    return 2 * model_s + _CALL_S + _cold_start_s(), shard_s + model_s


def section_7() -> Figure:
    """Hand-overs at the ends of lifetimes, and starts of many functions."""
    lifetime_s = given(platform("aws-lambda").lifetime_max_s, "lifetime of aws-lambda")
    lost = {
        name: {one.title: 100 * _handed_over_s(one)[at] / lifetime_s for one in WORKLOADS}
        for at, name in enumerate(("by the worker's own call", "successors that are warm"))
    }
    ways = _ways(_CALL_S)
    lambdas = [_lambda_s(n) for n in range(1, _MOST + 1)]
    one_by_one, at_once, tree = ways.values()
    others = {call_s: tuple(_ways(call_s).values()) for call_s in _OTHER_CALLS_S}
    crossing = [
        f"{1000 * call_s:g} ms: {_sooner_from(best, first)}, {_sooner_from(best, several)}"
        for call_s, (first, several, best) in {
            _CALL_S: (one_by_one, at_once, tree),
            **others,
        }.items()
    ]
    numbers = (100, 1000, 10_000)
    return Figure(
        name="fasdl-vii",
        what="FasDL, section VII: hierarchical invocation",
        panels=(
            Panel(
                title="training lost at the end of a lifetime of 900 s",
                x="",
                y="%",
                series=tuple(
                    Series(name=name, xs=tuple(by), ys=tuple(by.values()), kind="bars")
                    for name, by in lost.items()
                ),
            ),
            Panel(
                title="until the last function is invoked",
                x="functions",
                y="s",
                log_x=True,
                log_y=True,
                series=(
                    *(
                        Series(name=name, xs=_SHOWN, ys=tuple(by[n - 1] for n in _SHOWN))
                        for name, by in ways.items()
                    ),
                    Series(
                        name="Lambda's own rate",
                        xs=tuple(n for n in _SHOWN if n > _BURST),
                        ys=tuple(_lambda_s(n) for n in _SHOWN if n > _BURST),
                        dashed=True,
                    ),
                ),
            ),
        ),
        facts=(
            *(
                Fact(
                    what=f"end of a lifetime of 900 s, {name}: training lost of {', '.join(by)}",
                    theirs="no number",
                    ours=", ".join(f"{part:.2f} %" for part in by.values()),
                    agrees=None,
                )
                for name, by in lost.items()
            ),
            *(
                Fact(
                    what=f"{name}: the last of 100, 1000 and 10,000 functions is invoked after",
                    theirs="no number",
                    ours=", ".join(f"{by[n - 1]:.3g} s" for n in numbers),
                    agrees=None,
                )
                for name, by in {
                    **ways,
                    "Lambda's own rate": lambdas,
                }.items()
            ),
            Fact(
                what="functions from which a tree is sooner than calls one by one, and than "
                f"{_AT_ONCE} at once, by the time of a call",
                theirs="no number",
                ours="; ".join(crossing),
                agrees=None,
            ),
            Fact(
                what="functions from which Lambda's own rate is slower than "
                + ", than ".join(list(ways)[1:]),
                theirs="no number",
                ours=", ".join(_sooner_from(way, lambdas) for way in (at_once, tree)),
                agrees=None,
            ),
        ),
    )
