"""FuncPipe's own numbers, and its equations against dayfly's schedules in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.parts.papers.formulas.funcpipe import (
    PIPELINED_S,
    PLAIN_S,
    Layer,
    Pipeline,
    backward_s,
    forward_s,
    hat,
    iteration_s,
    iteration_usd,
    memory_bytes,
    synchronisation_s,
    tilde,
    total_memory,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.models import MODELS, layer_sizes, on_meta
from dayfly.planning.choose.formulas import gamma_and_delta
from dayfly.wire.collectives import COLLECTIVES
from dayfly.wire.pipelines.orders import FORWARD, fill_drain
from dayfly.wire.pipelines.step import Layout, StageBoundary
from dayfly.wire.schedule import Kind, Work
from dayfly.wire.virtual import Link, finish_s, simulate
from tests.pipelines.kit import pipeline as steps_of

pytestmark = pytest.mark.long

MB = 1e6
LAMBDA_BYTES_PER_S = 70 * MB
#: Bytes of messages and gradients are multiples, so that all splits of a stage are equal.
UNIT = 24


def example_s(name: str) -> float:
    """Section 3.3's example by the schedule: 280 MB, 8 workers, 70 MB/s, without latency."""
    schedules = [COLLECTIVES[name].schedule(rank, 8, 70_000_000) for rank in range(8)]
    rate = LAMBDA_BYTES_PER_S
    link = Link(up_bytes_per_s=rate, down_bytes_per_s=rate, latency_s=0.0)
    return finish_s(simulate(schedules, link))


def test_section_3_3s_example() -> None:
    """280 MB among 8 workers: "by 27%, from 11s to 8s"; and "up to 33%" with more workers."""
    plain_s = PLAIN_S(280 * MB, 8, LAMBDA_BYTES_PER_S, 0.0)
    pipelined_s = PIPELINED_S(280 * MB, 8, LAMBDA_BYTES_PER_S, 0.0)
    assert (plain_s, pipelined_s) == pytest.approx((11.0, 8.0))
    assert (example_s("scatter-reduce"), example_s("pipelined")) == pytest.approx((11.0, 8.0))
    assert f"{1 - pipelined_s / plain_s:.0%}" == "27%"
    endless = [form(280 * MB, 10**6, LAMBDA_BYTES_PER_S, 0.0) for form in (PIPELINED_S, PLAIN_S)]
    assert f"{1 - endless[0] / endless[1]:.0%}" == "33%"


def test_figure_1s_ratio() -> None:
    """900 MB on 8 Lambda functions: 6 s of computing, and "nearly 6X of that" of communication.

    The ratio of computing to communication is 0.17 in section 1, and 0.04 s the latency.
    """
    sync_s = PLAIN_S(900 * MB, 8, LAMBDA_BYTES_PER_S, 0.04)
    assert 5.85 < sync_s / 6 < 6
    assert round(6 / sync_s, 2) == 0.17


def test_memory_of_amoebanet_d36_with_a_local_batch_of_32() -> None:
    """By table 1, 697 MB of activations a sample and 900 MB of parameters: 25.9 GB and the base.

    The paper says about 30 GB. With a batch of 8 it fits Lambda's 10 GB, as it was run.
    """
    one = Layer(
        parameter_bytes=900 * MB,
        activation_bytes=697 * MB,
        output_bytes=0.0,
        gradient_bytes=0.0,
        forward_s=0.0,
        backward_s=0.0,
    )
    # Eight functions, each with micro-batches of a sample.
    of_32 = Pipeline(layers=(one,), replicas=8, micro_batches=8 * 32, bytes_per_s=(1.0,))
    assert memory_bytes(of_32, 0.0) == pytest.approx((25.904e9,))
    of_8 = replace(of_32, micro_batches=8 * 8)
    assert memory_bytes(of_8, 0.0)[0] < 10e9 < memory_bytes(of_32, 0.0)[0]


@pytest.mark.slow
def test_table_1s_memory_by_our_models() -> None:
    """The same of our AmoebaNet-D36, layer by layer: table 1 is MiB, so 27 GB, and the base."""
    entry = MODELS["amoebanet_d36"]
    sizes = layer_sizes(on_meta(entry.build), entry.sample(1))
    layers = tuple(
        Layer(
            parameter_bytes=size.parameter_bytes,
            activation_bytes=size.alone_bytes,
            output_bytes=size.output_bytes,
            gradient_bytes=size.output_bytes,
            forward_s=0.0,
            backward_s=0.0,
        )
        for size in sizes
    )
    whole = Pipeline(layers=layers, replicas=8, micro_batches=256, bytes_per_s=(1.0,))
    of_32 = memory_bytes(whole, 0.0)[0]
    assert of_32 == pytest.approx((32 * 680.8 + 4 * 901.0) * 2**20, rel=1e-3)


def test_hat_and_tilde_of_figure_3() -> None:
    """Four layers, cut behind 1 and 3: H = {1, 3, 4}, and u^_3 = u_2 + u_3 (section 3.4.1)."""
    cuts = (True, False, True, True)
    assert hat((1, 10, 100, 1000), cuts) == (1, 10, 110, 1000)
    assert tilde((1, 10, 100, 1000), cuts) == (1, 110, 100, 1000)


def test_memory_time_and_dollars_by_hand() -> None:
    """Two stages of two layers on two functions each, four micro-batches: mu = 2."""
    layer = Layer(
        parameter_bytes=100.0,
        activation_bytes=30.0,
        output_bytes=20.0,
        gradient_bytes=10.0,
        forward_s=1.0,
        backward_s=2.0,
    )
    here = Pipeline(
        layers=(layer,) * 4,
        starts=(2,),
        replicas=2,
        micro_batches=4,
        bytes_per_s=(10.0, 5.0),
        latency_s=0.5,
    )
    assert memory_bytes(here, 7.0) == (2 * 60 + 4 * 200 + 7,) * 2
    # Up 20/10 + 0.5, down 20/5 + 0.5: the way down is what takes longest.
    assert forward_s(here) == 4 * 1 + 2.5 + 4.5 + 1 * 4.5
    # Of the gradient up 10/5 + 0.5, down 10/10 + 0.5; a stage computes for 4 s.
    assert backward_s(here)[0] == 4 * 2 + 2.5 + 1.5 + 4
    assert backward_s(here)[2] == 4 + 4
    # gamma = 2, delta = 4.
    assert synchronisation_s(here) == (42.0, 22.0, 82.0, 42.0)
    assert iteration_s(here) == forward_s(here) + 8 + 82
    assert total_memory(here.replicas, (1024, 512)) == 3072
    assert iteration_usd(1e-5, 10.0, 3.0) == pytest.approx(3e-4)
    alone = replace(here, replicas=1, micro_batches=2)
    assert memory_bytes(alone, 7.0) == (2 * 60 + 2 * 200 + 7,) * 2
    assert synchronisation_s(alone) == (0.0,) * 4


@pytest.mark.parametrize(("name", "form"), [("pipelined", PIPELINED_S), ("plain", PLAIN_S)])
def test_gamma_and_delta_are_equations_1_and_2(name: str, form: object) -> None:
    """As corrected: the paper has those of the pipelined one alone."""
    assert callable(form)
    for replicas in (2, 3, 8):
        gamma, delta = gamma_and_delta(replicas, pipelined=name == "pipelined")
        seconds = gamma * 900 / 70 + delta * 0.04
        assert seconds == pytest.approx(form(900, replicas, 70, 0.04))


@st.composite
def pipelines(draw: st.DrawFn, latency_s: float = 0.0) -> Pipeline:
    """Any model of up to eight layers, cut anywhere."""
    count = draw(st.integers(1, 8))
    starts = tuple(sorted(draw(st.sets(st.integers(1, count - 1))))) if count > 1 else ()
    size = st.integers(1, 20).map(lambda units: float(units * UNIT))
    seconds = st.floats(0.1, 10)
    layer = st.builds(
        Layer,
        parameter_bytes=size,
        activation_bytes=size,
        output_bytes=size,
        gradient_bytes=size,
        forward_s=seconds,
        backward_s=seconds,
    )
    replicas = draw(st.sampled_from([1, 2, 3, 4]))
    stages = len(starts) + 1
    return Pipeline(
        layers=tuple(draw(st.lists(layer, min_size=count, max_size=count))),
        starts=starts,
        replicas=replicas,
        micro_batches=replicas * draw(st.integers(1, 5)),
        bytes_per_s=tuple(draw(st.lists(st.floats(5, 500), min_size=stages, max_size=stages))),
        latency_s=latency_s,
        beta=draw(st.floats(1, 2)),
        pipelined=draw(st.booleans()),
    )


def simulated_s(plan: Pipeline, ahead: int | None = None) -> list[float]:
    """When each stage is through, by its schedule: its passes, and then the sum of its gradients.

    A stage's sum begins when its last pass ends, as the equations have it, while its last gradient
    may still be on its way to the stage before: that takes no part of the line here. ahead: how
    many outputs a stage holds that are not sent yet; None: as many as there are.
    """
    layout = Layout(len(plan.starts) + 1, 1)
    first = (0, *plan.starts)
    stops = (*plan.starts, len(plan.layers))
    between = [
        StageBoundary(
            activation_bytes=int(plan.layers[start - 1].output_bytes),
            gradient_bytes=int(plan.layers[start].gradient_bytes),
        )
        for start in plan.starts
    ]
    numbers = range(plan.mu)
    steps = steps_of(
        layout, fill_drain, numbers, [[dict.fromkeys(numbers, b) for b in between]], 10**9
    )
    links = [
        Link(up_bytes_per_s=rate, down_bytes_per_s=rate, latency_s=plan.latency_s)
        for rate in plan.bytes_per_s
    ]

    def takes_s(rank: int, work: Work) -> float:
        own = plan.layers[first[rank] : stops[rank]]
        passes = [one.forward_s if work.what == FORWARD else one.backward_s for one in own]
        return plan.beta * sum(passes)

    times = simulate(
        [step.schedule(ahead=plan.mu if ahead is None else ahead) for step in steps],
        links,
        itemsize=1,
        work_s=takes_s,
    )
    name = "pipelined" if plan.pipelined else "scatter-reduce"
    through = []
    for rank, timed in enumerate(times):
        computed_s = max(one.done_s for one in timed if one.op.kind is Kind.COMPUTE)
        length = int(sum(one.parameter_bytes for one in plan.layers[first[rank] : stops[rank]]))
        made = [COLLECTIVES[name].schedule(r, plan.replicas, length) for r in range(plan.replicas)]
        through.append(computed_s + finish_s(simulate(made, links[rank], itemsize=1)))
    return through


@settings(deadline=None, max_examples=60)
@given(pipelines())
def test_without_latency_every_stage_is_through_when_equations_7_to_11_say(plan: Pipeline) -> None:
    backward, sync = backward_s(plan), synchronisation_s(plan)
    said = [forward_s(plan) + backward[at] + sync[at] for at in (0, *plan.starts)]
    found = simulated_s(plan)
    assert found == pytest.approx(said)
    assert max(found) == pytest.approx(iteration_s(plan))


@settings(deadline=None, max_examples=60)
@given(pipelines())
def test_a_stage_that_holds_few_outputs_waits_for_its_own_uplink(plan: Pipeline) -> None:
    """Two, as in runs. Equation 11 lets a stage compute on, however slowly its gradients leave.

    So it is above by no more than they take; and exact at the first stage, which sends none.
    """
    backward, sync = backward_s(plan), synchronisation_s(plan)
    for stage, (at, found) in enumerate(zip((0, *plan.starts), simulated_s(plan, 2), strict=True)):
        said = forward_s(plan) + backward[at] + sync[at]
        sending_s = plan.layers[at].gradient_bytes / plan.bytes_per_s[stage] if at else 0.0
        assert said * (1 - 1e-9) <= found <= (said + (plan.mu - 1) * sending_s) * (1 + 1e-9)


@settings(deadline=None, max_examples=60)
@given(pipelines(latency_s=0.5))
def test_with_latency_they_are_an_upper_bound(plan: Pipeline) -> None:
    """As requests overlap, a message's latency keeps no lane: each pays it once, not mu times."""
    saved_s = iteration_s(plan) - max(simulated_s(plan))
    assert saved_s >= -1e-9
    assert saved_s <= 2 * (plan.mu - 1) * plan.latency_s + 1e-9


@settings(deadline=None)
@given(pipelines(latency_s=0.2), st.floats(1, 10))
def test_more_bandwidth_less_latency_and_faster_layers_are_never_slower(
    plan: Pipeline, factor: float
) -> None:
    before = iteration_s(plan)
    wider = replace(plan, bytes_per_s=tuple(rate * factor for rate in plan.bytes_per_s))
    nearer = replace(plan, latency_s=plan.latency_s / factor)
    faster = replace(
        plan,
        layers=tuple(replace(one, forward_s=one.forward_s / factor) for one in plan.layers),
    )
    freer = replace(plan, beta=1 + (plan.beta - 1) / factor)
    for other in (wider, nearer, faster, freer):
        assert iteration_s(other) <= before * (1 + 1e-12)


@given(pipelines())
def test_pipelined_scatter_reduce_is_no_slower_without_latency(plan: Pipeline) -> None:
    gains = [iteration_s(replace(plan, pipelined=pipelined)) for pipelined in (True, False)]
    assert gains[0] <= gains[1] * (1 + 1e-12)


@given(pipelines(), st.floats(0, 1e9))
def test_more_micro_batches_need_more_memory_and_time(plan: Pipeline, base: float) -> None:
    more = replace(plan, micro_batches=plan.micro_batches + plan.replicas)
    assert iteration_s(more) >= iteration_s(plan)
    assert all(
        a > b for a, b in zip(memory_bytes(more, base), memory_bytes(plan, base), strict=True)
    )


def test_pipelines_that_do_not_fit() -> None:
    layer = Layer(
        parameter_bytes=1,
        activation_bytes=1,
        output_bytes=1,
        gradient_bytes=1,
        forward_s=1,
        backward_s=1,
    )
    with pytest.raises(ValueError, match="stages begin at"):
        Pipeline(layers=(layer,), starts=(1,), bytes_per_s=(1, 1))
    with pytest.raises(ValueError, match="2 rates for 1 stages"):
        Pipeline(layers=(layer,), bytes_per_s=(1, 1))
    with pytest.raises(ValueError, match="3 micro-batches for 2 replicas"):
        Pipeline(layers=(layer,), replicas=2, micro_batches=3, bytes_per_s=(1,))
    with pytest.raises(ValueError, match=r"beta is 0\.5"):
        Pipeline(layers=(layer,), bytes_per_s=(1,), beta=0.5)
