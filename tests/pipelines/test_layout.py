"""Which rank is which stage and replica."""

from __future__ import annotations

import pytest

from dayfly.wire.pipelines.step import Layout, StageRank


def test_a_layout_drawn() -> None:
    layout = Layout(3, 2)
    assert layout.world_size == 6
    assert [layout.stage_rank(rank) for rank in range(6)] == [
        StageRank(0, 0),
        StageRank(0, 1),
        StageRank(1, 0),
        StageRank(1, 1),
        StageRank(2, 0),
        StageRank(2, 1),
    ]
    assert [layout.stage_ranks(stage) for stage in range(3)] == [
        range(2),
        range(2, 4),
        range(4, 6),
    ]


@pytest.mark.parametrize("stages", [1, 2, 5])
@pytest.mark.parametrize("replicas", [1, 3])
def test_places_and_ranks_are_each_others_inverse(stages: int, replicas: int) -> None:
    layout = Layout(stages, replicas)
    for rank in range(layout.world_size):
        own = layout.stage_rank(rank)
        assert layout.rank(own.stage, own.replica) == rank
        assert rank in layout.stage_ranks(own.stage)


@pytest.mark.parametrize("numbers", [(0, 1), (1, 0), (-1, 2)])
def test_a_layout_has_a_rank(numbers: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="a stage and a replica at least"):
        Layout(*numbers)


def test_there_is_no_such_place() -> None:
    layout = Layout(3, 2)
    with pytest.raises(ValueError, match="rank 6 of 6"):
        layout.stage_rank(6)
    for stage, replica in ((3, 0), (0, 2), (-1, 0), (0, -1)):
        with pytest.raises(ValueError, match=f"replica {replica} of stage {stage}: there is none"):
            layout.rank(stage, replica)
    with pytest.raises(ValueError, match="stage 3: there is none"):
        layout.stage_ranks(3)
