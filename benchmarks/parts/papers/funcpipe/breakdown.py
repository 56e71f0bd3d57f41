"""FuncPipe's figure 6: what an iteration's time goes into."""

from __future__ import annotations

from benchmarks.parts.papers.figure import Fact, Figure, Panel, Series, percent, times
from benchmarks.parts.papers.funcpipe.overall import chosen
from benchmarks.parts.papers.funcpipe.peers import peers
from benchmarks.parts.papers.funcpipe.pipeline import Choice, parts_s, stage_s, step_s
from benchmarks.parts.papers.funcpipe.setting import TITLES, Setting, at_lambda, whole
from benchmarks.parts.papers.sums import sum_s

#: Panels (a) to (d).
_CASES = (("bert_large", 16), ("resnet101", 64), ("bert_large", 64), ("amoebanet_d36", 64))

#: Computing, pipeline flush, synchronisation: seconds.
Parts = tuple[float, float, float]


def parts(choice: Choice, at: Setting) -> Parts:
    """Of the stage that is done last: its computing; what it waits in the pipeline; its sum."""
    done, summed, stage = max(
        ((*both, stage) for stage, both in enumerate(parts_s(choice, at))),
        key=lambda one: one[0] + one[1],
    )
    computed = stage_s(choice, stage, at)
    return computed, done - computed, summed


def figure_6() -> Figure:
    """Training time breakdown: FuncPipe's choices, and its peers."""
    at = at_lambda()
    panels, peer, ours = [], {}, {}
    for letter, case in zip("abcd", _CASES, strict=True):
        name, batch = case
        choices, best = chosen(name, batch, at)
        ordered = sorted(choices, key=lambda one: step_s(one, at))
        bars: dict[str, Parts] = {
            f"FuncPipe\n{number}": parts(one, at) for number, one in enumerate(ordered, 1)
        }
        for other, one in peers(whole(name), batch, at).items():
            bars[other.replace("-GA", "\nGA")] = (one.compute_s, 0.0, one.sum_s)
        panels.append(
            Panel(
                title=f"({letter}) {TITLES[name]}, batch {batch}",
                x="",
                y="s",
                series=tuple(
                    Series(
                        name=what,
                        xs=tuple(bars),
                        ys=tuple(one[number] for one in bars.values()),
                        kind="bars",
                    )
                    for number, what in enumerate(("computing", "pipeline flush", "sums"))
                ),
            )
        )
        peer[case], ours[case] = bars["LambdaML"], parts(best, at)

    def share(one: Parts) -> float:
        return one[0] / (one[1] + one[2])

    gains = {case: sum(peer[case]) / sum(ours[case]) for case in _CASES[1:]}
    large = _CASES[2:]
    two = _two(at)
    small = [peer[_CASES[1]][2], sum(ours[_CASES[1]][1:])]
    return Figure(
        name="funcpipe-6",
        what="FuncPipe, figure 6: where the time goes",
        panels=tuple(panels),
        facts=(
            Fact(
                what="(a) peers with batch 16: workers' sums",
                theirs="none, one worker",
                ours=f"{peer[_CASES[0]][2]:.0f} s",
                agrees=peer[_CASES[0]][2] == 0,
            ),
            Fact(
                what="(a) summing BERT-Large at 70 MB/s over computing, two LambdaML workers",
                theirs="tens of seconds, longer",
                ours=f"{two[0]:.0f} s; {two[1]:.0f} s",
                agrees=two[0] > max(20, two[1]),
            ),
            Fact(
                what="(b) ResNet101's speedup beside those of (c) and (d)",
                theirs="smaller",
                ours=", ".join(map(times, gains.values())),
                agrees=min(gains, key=lambda case: gains[case]) == _CASES[1],
            ),
            Fact(
                what="(b) LambdaML's sums; FuncPipe's flush and sums",
                theirs="can be close",
                ours=f"{small[0]:.1f} s; {small[1]:.1f} s",
                agrees=abs(small[1] / small[0] - 1) < 0.25,
                why=_why_b(at),
            ),
            Fact(
                what="(c), (d) FuncPipe's flush and sums by LambdaML's sums",
                theirs="much lower",
                ours=", ".join(percent(sum(ours[case][1:]) / peer[case][2]) for case in large),
                agrees=all(sum(ours[case][1:]) < 0.5 * peer[case][2] for case in large),
            ),
            Fact(
                what="(c), (d) computing by communication: FuncPipe's over LambdaML's",
                theirs="larger",
                ours=", ".join(times(share(ours[case]) / share(peer[case])) for case in large),
                agrees=all(share(ours[case]) > share(peer[case]) for case in large),
            ),
        ),
    )


def _two(at: Setting) -> tuple[float, float]:
    """Sums and computing of BERT-Large on two functions with eight samples each."""
    model = whole("bert_large")
    summed_s = sum_s("scatter-reduce", 2, model.parameter_bytes, at.rate(2), at.latency_s)
    return summed_s, peers(model, 16, at)["LambdaML"].compute_s / 2


def _why_b(at: Setting) -> str:
    """The fastest of FuncPipe's choices, in place of the recommended one."""
    found = min(chosen("resnet101", 64, at)[0], key=lambda one: step_s(one, at))
    return f"{sum(parts(found, at)[1:]):.1f} s of the fastest choice, not the recommended one"
