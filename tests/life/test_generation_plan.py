"""The plan of a generation: what no workers can follow is refused."""

from __future__ import annotations

from typing import Any

import pytest

from dayfly.specs.functions import FunctionSpec
from dayfly.specs.generations import GenerationPlan, RankPlan


def rank(**more: Any) -> RankPlan:
    return RankPlan(spec=FunctionSpec(memory_mib=512), **more)


def plan(*layout: RankPlan, **more: Any) -> GenerationPlan:
    return GenerationPlan(
        **{"number": 0, "platform": "local", "channel": "tcp://", "store": "file:///", **more},
        layout=layout,
    )


def test_ranks_of_a_generation_differ_in_what_they_get_and_hold() -> None:
    found = plan(
        rank(stage=0, replica=0),
        rank(stage=0, replica=1),
        RankPlan(spec=FunctionSpec(memory_mib=2048), stage=1),
    )
    assert found.world_size == 3
    assert [one.spec.memory_mib for one in found.layout] == [512, 512, 2048]


@pytest.mark.parametrize(
    ("layout", "more", "words"),
    [
        ([], {}, "generation 0 has no worker"),
        ([rank()], {"number": -1}, "both from 0"),
        ([rank()], {"first_step": -1}, "both from 0"),
        ([rank(), rank()], {}, "two ranks have one replica of a stage"),
        ([rank(share=2), rank(replica=1, share=-1)], {}, "a rank has a share of -1: all from 0"),
        ([rank(share=0), rank(replica=1, share=0)], {}, "no rank has a share of the batches"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    layout: list[RankPlan], more: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        plan(*layout, **more)


def test_urls_may_hold_passwords_and_are_not_shown() -> None:
    assert "secret" not in repr(plan(rank(), channel="redis://:secret@host", store="s3://secret"))
