"""Checkpoints: in shards of equal size, whole once committed, and damage is named."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from dayfly.life import checkpoints
from dayfly.life.checkpoints import (
    CheckpointError,
    Writer,
    commit,
    discard_others,
    latest,
    read,
    read_own,
    share_of,
    shares,
    tidy,
)
from dayfly.life.commits import Checkpoint, CheckpointPart
from dayfly.wire.stores.base import StoreError, Version
from dayfly.wire.stores.files import FileStore

TREE = {"replica": {"optimizer": [1, 2.5, None]}, "progress": "some"}


def state() -> dict[str, torch.Tensor]:
    return {
        "w": torch.randn(5, 4),
        "transposed": torch.randn(4, 3).t(),
        "half": torch.randn(3).bfloat16(),
        "count": torch.tensor(7),
        "flags": torch.tensor([True, False]),
        "empty": torch.empty(0, 2),
        "complex": torch.randn(2, dtype=torch.complex64),
        "nan": torch.tensor([math.nan, -math.inf, -0.0]),
    }


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    def raw(t: torch.Tensor) -> Any:
        flat = t.contiguous().reshape(-1).view(torch.uint8)
        return t.dtype, t.shape, flat.tolist()

    return {name: raw(t) for name, t in a.items()} == {name: raw(t) for name, t in b.items()}


def write_share(
    store: FileStore, step: int, rank: int, world_size: int, tree: Any, tensors: Any
) -> tuple[CheckpointPart, ...]:
    """A rank's part, of the tensors as they are now."""
    writer = Writer(rank, world_size)
    return checkpoints.write_share(store, step, writer, tree, share_of(writer, tensors))


def write(store: FileStore, step: int, world_size: int, tensors: Any = None) -> Checkpoint:
    kept = state() if tensors is None else tensors
    ranks = reversed(range(world_size))
    parts = [p for rank in ranks for p in write_share(store, step, rank, world_size, TREE, kept)]
    return commit(store, step, parts)


def names(store: FileStore, folder: str) -> list[str]:
    """What is right below a folder: folders, and objects with their last name."""
    found = {info.name.removeprefix(f"{folder}/").partition("/")[0] for info in store.list(folder)}
    return sorted(found)


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path)


sizes = st.dictionaries(st.text(max_size=4), st.integers(0, 10**6), max_size=40)


@given(sizes=sizes, parts=st.integers(1, 12))
def test_shares_are_complete_and_balanced(sizes: dict[str, int], parts: int) -> None:
    found = shares(sizes, parts)
    assert len(found) == parts
    assert sorted(name for share in found for name in share) == sorted(sizes)
    loads = [sum(sizes[name] for name in share) for share in found]
    assert max(loads) - min(loads) <= max(sizes.values(), default=0)
    # Longest processing time first (Graham, 1969): within 4/3 of the best possible.
    at_least = max(sum(sizes.values()) / parts, max(sizes.values(), default=0))
    ordered = sorted(sizes.values(), reverse=True)
    if len(ordered) > parts:
        at_least = max(at_least, ordered[parts - 1] + ordered[parts])
    assert max(loads) <= (4 / 3) * at_least + 1e-9
    assert shares(dict(reversed(sizes.items())), parts) == found, "every rank finds the same"


@pytest.mark.parametrize("world_size", [1, 2, 3, 8, 20])
def test_written_by_all_ranks_and_read_by_anyone(world_size: int, store: FileStore) -> None:
    """With more ranks than tensors, some write empty parts."""
    tensors = state()
    checkpoint = write(store, 12, world_size, tensors)
    assert latest(store) == checkpoint
    assert checkpoint.step == 12
    assert len(checkpoint.parts) == world_size + 1
    tree, found = read(store, checkpoint)
    assert tree == TREE
    assert same(found, tensors)
    assert names(store, "checkpoint/000000012") == sorted(
        ["tree.json", *(f"part-{rank}-of-{world_size}" for rank in range(world_size))]
    )


def test_tensors_that_share_memory(store: FileStore) -> None:
    """Such as a buffer that is a view of a parameter."""
    base = torch.arange(6.0)
    tensors = {"a": base, "b": base[:3], "c": base.view(2, 3), "d": base[3:], "e": base}
    assert same(read(store, write(store, 0, 2, tensors))[1], tensors)


def test_a_part_written_twice_has_the_same_bytes(store: FileStore) -> None:
    tensors = state()
    first = write_share(store, 3, 1, 2, TREE, tensors)
    assert write_share(store, 3, 1, 2, TREE, tensors) == first


def test_a_checkpoint_counts_from_its_commit(store: FileStore) -> None:
    assert latest(store) is None
    first = write(store, 1, 2)
    parts = [part for rank in range(2) for part in write_share(store, 2, rank, 2, TREE, state())]
    assert latest(store) == first
    assert commit(store, 2, parts).step == 2
    found = latest(store)
    assert found is not None
    assert found.step == 2
    assert [p.object for p in found.parts] == sorted(p.object for p in parts)


@pytest.mark.parametrize("damage", ["flip", "cut", "more", "empty"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_damage_is_refused_by_name(damage: str, number: int, store: FileStore) -> None:
    checkpoint = write(store, 5, 2)
    part = checkpoint.parts[number]
    data = bytearray(store.get(part.object))
    match damage:
        case "flip":
            data[-1] ^= 1
        case "cut":
            del data[-1:]
        case "more":
            data += b" "
        case "empty":
            data.clear()
    store.put(part.object, bytes(data))
    with pytest.raises(CheckpointError) as refused:
        read(store, checkpoint)
    text = str(refused.value)
    assert text.startswith(f"{part.object} in {store.root} was damaged: {len(data)} bytes, digest")
    assert f"but {part.size_bytes} bytes, {part.digest} were written" in text


def test_a_missing_part_is_named(store: FileStore) -> None:
    checkpoint = write(store, 5, 2)
    store.delete([checkpoint.parts[1].object])
    with pytest.raises(StoreError, match=r"checkpoint/000000005/part-1-of-2 is not in"):
        read(store, checkpoint)


def test_a_tree_without_json_is_not_written_as_something_else(store: FileStore) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_share(store, 0, 0, 1, {"loss": math.nan}, {})


def test_earlier_checkpoints_are_discarded_the_kept_and_later_ones_stay(store: FileStore) -> None:
    for step in (1, 20, 300, 300_000_000):
        write_share(store, step, 0, 1, TREE, state())
    keep = write(store, 40, 1)
    discard_others(store, keep)
    discard_others(store, keep)
    assert names(store, "checkpoint") == ["000000040", "000000300", "300000000", "latest.json"]
    assert read(store, keep)[0] == TREE


def test_tidying_leaves_nothing_before_the_checkpoint_or_beside_it(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    for step in (1, 3, 5):
        parts = write_share(store, step, 0, 1, {}, {"a": torch.ones(2)})
        if step == 3:
            kept = commit(store, step, parts)
    (tmp_path / "checkpoint" / "000000003" / "part-0-of-1.0123.tmp").write_bytes(b"cut sho")
    # A folder of its own, as a writer leaves that was killed after the folder had been removed.
    (tmp_path / "checkpoint" / "000000002").mkdir()
    (tmp_path / "checkpoint" / "000000002" / f"part-0-of-1.{'0a' * 16}.tmp").write_bytes(b"cut")
    tidy(store, kept)
    assert not (tmp_path / "checkpoint" / "000000002").exists()
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    later = {part.object for part in parts}  # maybe another coordinator's
    assert files == {"checkpoint/latest.json", *(part.object for part in kept.parts)} | later
    assert read(store, kept)[1]["a"].tolist() == [1, 1]


def write_owns(store: FileStore, world_size: int) -> Checkpoint:
    """A checkpoint in which rank j has a tensor of its own, full of j."""
    tensors, parts = state(), []
    for rank in range(world_size):
        writer = Writer(rank, world_size)
        own = {"residual": torch.full((3,), float(rank))}
        share = share_of(writer, tensors)
        parts += checkpoints.write_share(store, 7, writer, TREE, share, own)
    return commit(store, 7, parts)


def test_what_is_a_ranks_own_is_read_by_that_rank_alone(store: FileStore) -> None:
    checkpoint = write_owns(store, 3)
    for rank in range(3):
        (own,) = read_own(store, checkpoint, rank, 3)
        assert same(own, {"residual": torch.full((3,), float(rank))})
    for rank in range(3):
        store.delete([f"checkpoint/000000007/own-{rank}-of-3"])
    _, tensors = read(store, checkpoint)
    assert tensors.keys() == state().keys(), "nobody needs the others' to be there"


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [(1, [[0, 1, 2, 3]]), (3, [[0, 3], [1], [2]]), (5, [[0], [1], [2], [3], []])],
)
def test_of_another_number_of_ranks_each_falls_to_one(
    ranks: int, expected: list[list[int]], store: FileStore
) -> None:
    checkpoint = write_owns(store, 4)
    found = [read_own(store, checkpoint, rank, ranks) for rank in range(ranks)]
    assert [[int(own["residual"][0]) for own in owns] for owns in found] == expected


def test_a_damaged_part_of_a_rank_is_refused_by_name(store: FileStore) -> None:
    checkpoint = write_owns(store, 2)
    store.put("checkpoint/000000007/own-1-of-2", b"else")
    read_own(store, checkpoint, 0, 2)
    with pytest.raises(CheckpointError, match=r"own-1-of-2 .* was damaged"):
        read_own(store, checkpoint, 1, 2)


def test_a_checkpoint_without_such_parts_has_none(store: FileStore) -> None:
    assert read_own(store, write(store, 1, 2), 0, 2) == ()
    tidy(store, write_owns(store, 2))
    assert len(names(store, "checkpoint/000000007")) == 5


def stage_states(stages: int) -> list[tuple[Any, dict[str, torch.Tensor]]]:
    """States that have a scheduler in common, and one tensor."""
    made = []
    for stage in range(stages):
        own = {"a": stage, "nested": {f"of {stage}": [stage]}}
        tree = {"state": {f"s{stage}": own}, "scheduler": {"rates": [0.1]}, "progress": "some"}
        tensors = {f"s{stage}.{name}": tensor for name, tensor in state().items()}
        made.append((tree, tensors | {"rate": torch.tensor(0.1)}))
    return made


def write_cut(store: FileStore, step: int, states: Any, replicas: int) -> Checkpoint:
    parts: list[CheckpointPart] = []
    for stage, (tree, tensors) in enumerate(states):
        for replica in reversed(range(replicas)):
            writer = Writer(replica, replicas, stage, len(states))
            parts += checkpoints.write_share(store, step, writer, tree, share_of(writer, tensors))
    return commit(store, step, parts)


def whole_of(states: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    tree: dict[str, Any] = {"state": {}}
    tensors: dict[str, torch.Tensor] = {}
    for its, its_tensors in states:
        tree = {**its, "state": {**tree["state"], **its["state"]}}
        tensors |= its_tensors
    return tree, tensors


@pytest.mark.parametrize(("stages", "replicas"), [(2, 1), (3, 2), (11, 3)])
def test_a_stages_state_is_read_alone_and_all_are_the_whole(
    stages: int, replicas: int, store: FileStore
) -> None:
    states = stage_states(stages)
    checkpoint = write_cut(store, 4, states, replicas)
    assert latest(store) == checkpoint
    assert checkpoints.stages(checkpoint) == stages
    tree, tensors = read(store, checkpoint)
    assert tree == whole_of(states)[0]
    assert same(tensors, whole_of(states)[1])
    for name in names(store, "checkpoint/000000004"):
        if not name.startswith(f"stage-1-of-{stages}."):
            store.delete([f"checkpoint/000000004/{name}"])
    tree, tensors = read(store, checkpoint, stage=1)
    assert tree == states[1][0]
    assert same(tensors, states[1][1])
    with pytest.raises(StoreError, match=r"stage-0-of-"):
        read(store, checkpoint, stage=0)


def test_parts_of_stages_have_names_of_their_own(store: FileStore) -> None:
    write_cut(store, 4, stage_states(2), 2)
    assert names(store, "checkpoint/000000004") == [
        "stage-0-of-2.part-0-of-2",
        "stage-0-of-2.part-1-of-2",
        "stage-0-of-2.tree.json",
        "stage-1-of-2.part-0-of-2",
        "stage-1-of-2.part-1-of-2",
        "stage-1-of-2.tree.json",
    ]


def test_a_model_that_is_not_cut_has_one_stage(store: FileStore) -> None:
    checkpoint = write(store, 1, 2)
    assert checkpoints.stages(checkpoint) == 1
    assert read(store, checkpoint, stage=0)[0] == TREE
    with pytest.raises(CheckpointError, match="of step 1 has 1 stages, and not stage 1"):
        read(store, checkpoint, stage=1)


@pytest.mark.parametrize("place", [(0, 0), (2, 2), (-1, 2), (0, 1, 1, 1), (0, 1, -1, 2)])
def test_a_writer_is_within_its_group(place: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="outside its group"):
        Writer(*place)


def test_what_is_a_ranks_own_is_not_kept_of_a_cut_model(store: FileStore) -> None:
    with pytest.raises(ValueError, match="not kept of a model that is cut"):
        checkpoints.write_share(store, 1, Writer(0, 1, 0, 2), {}, {}, {"residual": torch.ones(1)})
    assert names(store, "checkpoint") == []


def by_initial(count: int) -> Any:
    """Splits a whole state in `count`, by what its names have in them."""

    def split(tree: Any, tensors: dict[str, torch.Tensor]) -> Any:
        def mine(name: str, stage: int) -> bool:
            return int(name.split(".")[0][1:]) * count // len(tree["state"]) == stage

        return [
            (
                {**tree, "state": {n: v for n, v in tree["state"].items() if mine(n, stage)}},
                {n: t for n, t in tensors.items() if n == "rate" or mine(n, stage)},
            )
            for stage in range(count)
        ]

    return split


def test_written_anew_for_other_cuts_again_and_again(store: FileStore) -> None:
    states = stage_states(4)
    tree, tensors = whole_of(states)
    checkpoint = write_cut(store, 4, states, 2)
    for count in (2, 2, 1, 4, 3):
        expected = by_initial(count)(tree, tensors)
        checkpoint = checkpoints.recut(store, checkpoint, by_initial(count))
        assert latest(store) == checkpoint
        assert checkpoints.stages(checkpoint) == count
        for stage, (its, its_tensors) in enumerate(expected):
            found, found_tensors = read(store, checkpoint, stage)
            assert found == its
            assert same(found_tensors, its_tensors)
        assert read(store, checkpoint)[0] == tree
        assert same(read(store, checkpoint)[1], tensors)
        objects = [part.object for part in checkpoint.parts]
        found = [info.name for info in store.list("checkpoint/000000004")]
        assert found == objects
    tidy(store, checkpoint)
    discard_others(store, checkpoint)
    assert same(read(store, checkpoint)[1], tensors)
    assert len(write(store, 5, 1).parts) == 2
    discard_others(store, Checkpoint(5, ()))
    assert names(store, "checkpoint") == ["000000005", "latest.json"]


class Power(Exception):
    """Is lost."""


class FailingStore(FileStore):
    """Its power is lost before a write or removal, by their number."""

    left = 10**6

    def _spend(self) -> None:
        if self.left == 0:
            raise Power
        self.left -= 1

    def put(self, name: str, data: Any) -> Version:
        self._spend()
        return super().put(name, data)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._spend()
            super().delete([name])


@pytest.mark.parametrize("first", ["workers", "coordinator"])
def test_a_checkpoint_is_whole_whenever_its_rewriting_ends(first: str, tmp_path: Path) -> None:
    """Cut as before, so that names would collide; a second try succeeds after any first."""
    states = stage_states(2)
    tree, tensors = whole_of(states)
    writes = 0
    while True:
        store = FailingStore(tmp_path / str(writes))
        checkpoint = write_cut(store, 4, states, 1)
        if first == "coordinator":
            checkpoint = checkpoints.recut(store, checkpoint, by_initial(2))
        store.left = writes
        try:
            checkpoints.recut(store, checkpoint, by_initial(2))
        except Power:
            pass
        else:
            break
        found = latest(store)
        assert found is not None
        assert read(store, found)[0] == tree
        assert same(read(store, found)[1], tensors)
        store.left = 10**6
        again = checkpoints.recut(store, found, by_initial(1))
        assert same(read(store, again)[1], tensors)
        tidy(store, again)
        assert len(names(store, "checkpoint/000000004")) == 2
        writes += 1
    assert writes == 2 * 2 + 1 + 4, "as many as are written, a commit, and as many as are removed"


def test_what_stages_should_have_in_common_is_not_chosen_silently(store: FileStore) -> None:
    """To read the results, the first stage's will do; to give it to other stages it will not."""
    states = stage_states(2)
    states[1][0]["scheduler"] = {"rates": [0.2]}
    checkpoint = write_cut(store, 4, states, 1)
    assert read(store, checkpoint)[0]["scheduler"] == {"rates": [0.1]}
    assert read(store, checkpoint, stage=1)[0]["scheduler"] == {"rates": [0.2]}
    with pytest.raises(CheckpointError, match=r"differ in scheduler\.rates, .* go on with the cut"):
        checkpoints.recut(store, checkpoint, by_initial(1))
    assert latest(store) == checkpoint
    states = stage_states(2)
    states[1][1]["rate"] = torch.tensor(0.2)
    checkpoint = write_cut(store, 5, states, 1)
    assert read(store, checkpoint)[1]["rate"] == torch.tensor(0.1)
    with pytest.raises(CheckpointError, match="differ in rate, which they should"):
        checkpoints.recut(store, checkpoint, by_initial(1))


def test_a_damaged_part_of_a_stage_hinders_that_stage_alone(store: FileStore) -> None:
    checkpoint = write_cut(store, 4, stage_states(2), 2)
    store.put("checkpoint/000000004/stage-1-of-2.part-1-of-2", b"else")
    read(store, checkpoint, stage=0)
    for stage in (1, None):
        with pytest.raises(CheckpointError, match=r"stage-1-of-2\.part-1-of-2 .* was damaged"):
            read(store, checkpoint, stage)


json_trees = st.recursive(
    st.none() | st.integers(0, 3) | st.text(max_size=2) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(one=json_trees, other=json_trees)
def test_merging_trees(one: Any, other: Any) -> None:
    lenient = checkpoints.merged(one, other, strict=False)
    assert checkpoints.merged(lenient, one) == lenient, "all of the first is in it"
    assert checkpoints.merged(one, one) == one
    try:
        both = checkpoints.merged(one, other)
    except CheckpointError:
        assert checkpoints.merged(other, one, strict=False) != lenient
    else:
        assert both == lenient == checkpoints.merged(other, one)
        assert checkpoints.merged(both, other) == both


def test_a_part_that_is_no_safetensors_is_refused_though_it_is_undamaged(store: FileStore) -> None:
    data = b"written by something else"
    store.put("checkpoint/000000001/part-0-of-1", data)
    part = CheckpointPart(
        "checkpoint/000000001/part-0-of-1", len(data), xxhash.xxh3_128_hexdigest(data)
    )
    with pytest.raises(CheckpointError, match=r"part-0-of-1 in .* cannot be read: ObjectDamaged"):
        read(store, commit(store, 1, [part]))
