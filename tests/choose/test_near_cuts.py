"""Cuts near the front of their equations: what is found is near, and nearly all that is."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest
from benchmarks.parts.enumerated import cuts, problems, stages

from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.choose.pipelines.choose import choose
from dayfly.planning.choose.pipelines.messages import with_messages
from dayfly.planning.choose.pipelines.near import near_cuts
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.configuration import Configuration
from dayfly.planning.predict import predict
from dayfly.runs.choosing.targets import Target
from dayfly.wire.pipelines.orders import FILL_DRAIN

SLACK = 0.25


def test_they_are_those_of_all_cuts_that_are_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine in ten, where a thousand are looked at: some are no neighbours of any that is near."""
    for limit in ("_LOOKED_AT", "_KNOWN"):
        monkeypatch.setattr(f"dayfly.planning.choose.pipelines.near.{limit}", 6000)
    near, found = 0, 0
    for seed in range(20):
        problem = problems.stages(Random(seed))
        try:
            points = choose(problem, compiled=False).points
        except RequestError:  # no plan fits
            continue
        of = [(one.seconds, one.usd) for one in Front.of(points).points]
        every = {one.plan: one for one in stages.every_point(problem)}
        among = {one.plan: one for one in near_cuts([problem], points, SLACK)}
        known = {one.plan for one in points}
        for plan, one in among.items():
            assert one.seconds == pytest.approx(every[plan].seconds, rel=1e-9)
            assert one.usd == pytest.approx(every[plan].usd, rel=1e-9)
        excess = {
            plan: max(min(one.seconds / s, one.usd / usd) for s, usd in of)
            for plan, one in every.items()
        }
        within = {one for one, by in excess.items() if by <= 1 + SLACK and one not in known}
        assert among.keys() <= within
        near, found = near + len(within), found + len(among)
    assert found >= 0.9 * near > 0


def test_there_are_none_of_nothing_or_over_direct_links() -> None:
    assert near_cuts([problems.stages(Random(3))], (), SLACK) == []
    links = problems.shards(Random(1))
    assert near_cuts([links], choose(links, compiled=False).points, math.inf) == []


def test_messages_cost_what_their_requests_do() -> None:
    """Eight micro-batches over one boundary, each way; two replicas of either stage sum."""
    problem = replace(
        problems.stages(Random(3)), micro_batches=8, degrees=(1, 2), schedule=FILL_DRAIN
    )
    cut = PipelinePlan(
        layers=len(problem.layers),
        starts=(1,),
        options=(0, 0),
        memory_mib=(problem.options[0].memory_mib,) * 2,
        replicas=(1, 1),
        micro_batches=8,
        collective="pipelined",
    )
    points = [Point(1.0, 2.0, cut), Point(1.0, 2.0, replace(cut, replicas=(2, 2)))]
    store = Catalogue().store("s3")
    put_usd, get_usd = store.puts_usd(1, 0), store.gets_usd(1, 0)
    alone, summed = with_messages([problem], points, store)
    assert alone.usd == pytest.approx(2 + 16 * (put_usd + get_usd))
    assert summed.usd == pytest.approx(2 + (16 + 8) * (put_usd + get_usd))
    assert with_messages([problem], points, None) == points


def test_a_faster_cut_that_equations_take_for_slower_is_shown() -> None:
    """Of this job the front of the equations alone missed three by up to 6%."""
    chance = Random("5 cuts")
    made = [cuts.random_problem(chance) for _ in range(4)][3]
    target = Target.of(made, Catalogue())
    shown = cuts.chosen(made).points
    for cut in ((1,), (2,)):
        c = Configuration(
            workers=2,
            cut=cut,
            memory_mib=(3538, 3538),
            micro_batches=2,
            batch_size=made.batch_size or 1,
            lifetime_s=900.0,
        )
        said = predict(target.profile, c, target.platform, target.store)
        worse = (max(one.seconds / said.total_s, one.usd / said.cost_usd) for one in shown)
        assert min(worse) < 1.02
