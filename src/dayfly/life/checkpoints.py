"""Run checkpoints: one step, all of the run's state, in shards that the workers write.

    checkpoint/000000120/tree.json            what is not a tensor, by rank 0
    checkpoint/000000120/part-0-of-4          safetensors, by rank 0
    ...
    checkpoint/000000120/own-0-of-4           safetensors, rank 0's alone, if it has such
    checkpoint/latest.json                    the commit, by the coordinator: step, parts, digests,
                                              and a digest of all that

Replicas are equal, so the state is written once: each rank writes its share of the tensors. What
is a rank's own, such as a residual of compression, nobody else reads. The
checkpoint counts from the moment when `latest.json` names it; until then the one before it does.
A part that is written twice is written with the same bytes.

Of a model that is cut, each stage's replicas write their stage's state, which is a part of the
whole, and a worker reads its stage's alone:

    checkpoint/000000120/stage-1-of-3.tree.json
    checkpoint/000000120/stage-1-of-3.part-0-of-2

A committed checkpoint that the coordinator has written anew, for another cut, has `cut-0.` or
`cut-1.` before its names, so that it lies beside the one that it replaces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dayfly.dataclass_json import dump
from dayfly.dataclass_json import read as read_json
from dayfly.errors import DayflyError, RequestError
from dayfly.json_files import check_size, parse
from dayfly.life.commits import Checkpoint, CheckpointPart, Commit, digest_of, folder_of
from dayfly.life.shards import read_shard, write_shard
from dayfly.wire.stores.base import Store, StoreError

Tensors = dict[str, torch.Tensor]
#: A tree of JSON, and the tensors that it speaks of.
State = tuple[Any, Tensors]

_LATEST = "checkpoint/latest.json"
_TREE = "tree.json"
#: What to do about a damaged commit.
_REMEDY = "put back the file from a copy of the run's directory, or begin the run anew"
#: How the names of parts begin that are a rank's own.
_OWN = "own-"
_NAME = re.compile(r"(?P<cut>cut-[01]\.)?(stage-(?P<stage>\d+)-of-(?P<stages>\d+)\.)?(?P<what>.+)")


class CheckpointError(DayflyError):
    """A checkpoint is not there, or is not what was written."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes: replica `replica` of the `replicas` of stage `stage` of `stages`."""

    replica: int = 0
    replicas: int = 1
    stage: int = 0
    stages: int = 1

    def __post_init__(self) -> None:
        if not (0 <= self.replica < self.replicas and 0 <= self.stage < self.stages):
            raise ValueError(f"{self} is outside its group")

    @property
    def share(self) -> tuple[int, int]:
        """Its number among those who share each batch, and how many these are."""
        return self.replica, self.replicas

    @property
    def prefix(self) -> str:
        """How the names of its parts begin; of a model that is not cut, with nothing."""
        return f"stage-{self.stage}-of-{self.stages}." if self.stages > 1 else ""


def shares(sizes: Mapping[str, int], parts: int) -> tuple[tuple[str, ...], ...]:
    """Names in `parts` groups of nearly equal size: the largest first, to the smallest group."""
    groups: list[list[str]] = [[] for _ in range(parts)]
    loads = [0] * parts
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        least = loads.index(min(loads))
        groups[least].append(name)
        loads[least] += sizes[name]
    return tuple(tuple(sorted(group)) for group in groups)


def share_of(writer: Writer, tensors: Tensors, settled: Collection[str] = ()) -> Tensors:
    """Copies of its stage's tensors that it writes: as they are now, whatever becomes of them.

    Args:
        settled: names of those that nobody changes until they are written; not copied.
    """
    sizes = {name: t.nbytes for name, t in tensors.items()}
    mine = shares(sizes, writer.replicas)[writer.replica]
    plain = torch.contiguous_format
    return {
        name: tensors[name].detach().to("cpu").contiguous()
        if name in settled
        else tensors[name].detach().to("cpu", copy=True, memory_format=plain)
        for name in mine
    }


def write_share(
    store: Store,
    step: int,
    writer: Writer,
    tree: Any,
    share: Tensors,
    own: Tensors | None = None,
) -> tuple[CheckpointPart, ...]:
    """Write a worker's part of the state before `step`; returns what was written.

    Args:
        share: from `share_of`.
        tree: what is not a tensor, of its stage, which replica 0 writes.
        own: what only this worker has; of a model that is not cut.
    """
    if own and writer.stages > 1:
        raise ValueError("what is a rank's own is not kept of a model that is cut")
    return _write_state(store, f"{folder_of(step)}/{writer.prefix}", writer, tree, share, own)


def write_stages(store: Store, step: int, states: Sequence[State]) -> tuple[CheckpointPart, ...]:
    """Write the states of all stages, as one process has them; returns what was written."""
    written: list[CheckpointPart] = []
    for stage, (tree, tensors) in enumerate(states):
        writer = Writer(stage=stage, stages=len(states))
        written += write_share(store, step, writer, tree, share_of(writer, tensors, tensors))
    return tuple(written)


def recut(
    store: Store, checkpoint: Checkpoint, split: Callable[[Any, Tensors], Sequence[State]]
) -> Checkpoint:
    """Writes a committed checkpoint anew for other stages, commits that, and removes the former.

    At every moment `latest.json` names a complete checkpoint. State of single ranks is left out.

    Args:
        store: of the run.
        checkpoint: the committed one.
        split: from the whole state to its stages'.

    Returns:
        The new checkpoint.

    Raises:
        CheckpointError: the checkpoint was damaged, or its stages differ in what they should have
            in common.
    """
    tree, tensors = _read_parts(store, checkpoint.parts, strict=True)
    used = {_fields(part)["cut"] for part in checkpoint.parts}
    cut = next(f"cut-{n}." for n in range(2) if f"cut-{n}." not in used)
    states = split(tree, tensors)
    written: list[CheckpointPart] = []
    for stage, (its_tree, its_tensors) in enumerate(states):
        writer = Writer(stage=stage, stages=len(states))
        prefix = f"{folder_of(checkpoint.step)}/{cut}{writer.prefix}"
        written += _write_state(store, prefix, writer, its_tree, share_of(writer, its_tensors))
    anew = commit(store, checkpoint.step, written)
    store.delete(part.object for part in checkpoint.parts)
    return anew


def commit(store: Store, step: int, parts: Sequence[CheckpointPart]) -> Checkpoint:
    """Make the parts the latest checkpoint."""
    checkpoint = Checkpoint(step, tuple(sorted(parts, key=lambda part: part.object)))
    commit = Commit(checkpoint.step, checkpoint.parts, checkpoint.digest)
    store.put(_LATEST, json.dumps(dump(commit)).encode())
    return checkpoint


def latest(store: Store) -> Checkpoint | None:
    """The committed checkpoint, if there is one. Raises CheckpointError if it was damaged."""
    info = store.stat(_LATEST)
    if info is None:
        return None
    origin = f"{store}/{_LATEST}"
    try:
        check_size(info.size_bytes, origin)
        tree = parse(store.get(_LATEST), origin, _REMEDY)
        return read_json(Commit, tree, origin, remedy=_REMEDY).checkpoint
    except RequestError as error:
        raise CheckpointError(str(error)) from error


def stages(checkpoint: Checkpoint) -> int:
    """In how many stages a checkpoint was written."""
    return int(_fields(checkpoint.parts[0])["stages"] or 1)


def read(store: Store, checkpoint: Checkpoint, stage: int | None = None) -> State:
    """The state in a checkpoint: tree and tensors, without what is a rank's own.

    Args:
        stage: read its alone; None: the whole, merged of all stages' (see `merged`; where they
            differ, what the first stage has counts).

    Raises:
        CheckpointError: it was damaged.
    """
    if stage is None:
        return _read_parts(store, checkpoint.parts, strict=False)
    if stage >= (known := stages(checkpoint)):
        raise CheckpointError(
            f"the checkpoint of step {checkpoint.step} has {known} stages, and not stage {stage}"
        )
    mine = [part for part in checkpoint.parts if int(_fields(part)["stage"] or 0) == stage]
    return _read_parts(store, mine, strict=True)


def read_own(
    store: Store, checkpoint: Checkpoint, rank: int, world_size: int
) -> tuple[Tensors, ...]:
    """What is this rank's own in a checkpoint; of another number of ranks, what falls to it.

    Rank j's falls to j modulo `world_size`. Raises CheckpointError if it was damaged.
    """
    mine = [
        (owner, part)
        for part in checkpoint.parts
        if (owner := _owner(part)) is not None and owner % world_size == rank
    ]
    mine.sort(key=lambda pair: pair[0])
    return tuple(_read_tensors(store, part) for _, part in mine)


def owners(checkpoint: Checkpoint) -> int:
    """How many ranks have something of their own in a checkpoint: all that wrote it, or none."""
    return sum(_owner(part) is not None for part in checkpoint.parts)


def merged(one: Any, other: Any, path: str = "", *, strict: bool = True) -> Any:
    """Returns the JSON trees of two stages as one: objects are merged, all else has to be equal.

    Args:
        one: the first stage's tree.
        other: the second stage's tree.
        strict: whether to raise where they differ; otherwise the first tree counts.
        path: place of the trees, for errors.

    Raises:
        CheckpointError: they differ; names the place.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        both = {
            key: merged(one[key], other[key], f"{path}.{key}", strict=strict)
            for key in one
            if key in other
        }
        return {**one, **other, **both}
    if strict and one != other:
        raise _differing(path.removeprefix("."))
    return one


def discard_others(store: Store, keep: Checkpoint) -> None:
    """Remove the checkpoints before `keep`."""
    for folder, step in _folders(store):
        if step < keep.step:
            store.clear(folder)


def tidy(store: Store, keep: Checkpoint) -> None:
    """Remove all up to `keep` that is no part of it, once nobody writes: what killed writers left.

    Parts of a later one stay, as those of a coordinator that leads the run by now.
    """
    known = {part.object for part in keep.parts}
    discard_others(store, keep)
    for folder, step in _folders(store):
        if step == keep.step:
            store.delete(info.name for info in store.list(folder) if info.name not in known)
    # Also in folders that hold nothing else, which are not listed.
    store.below("checkpoint").discard_unfinished()


def _folders(store: Store) -> Iterator[tuple[str, int]]:
    """The folders of checkpoints, with their steps."""
    for folder in store.folders("checkpoint"):
        if (number := folder.rpartition("/")[2]).isdigit():
            yield folder, int(number)


def _read_parts(store: Store, parts: Sequence[CheckpointPart], *, strict: bool) -> State:
    """Merge parts, one after another.

    Args:
        strict: as of `merged`, and for the tensors likewise.
    """
    tree: Any = None
    tensors: Tensors = {}
    # In the order of stages: of ten and more, their names are in another.
    for part in sorted(parts, key=lambda part: int(_fields(part)["stage"] or 0)):
        if _owner(part) is not None:
            continue
        if part.object.endswith(_TREE):
            its = _read_tree(store, part)
            tree = its if tree is None else merged(tree, its, strict=strict)
        else:
            for name, tensor in _read_tensors(store, part).items():
                if strict and not _same(tensors.setdefault(name, tensor), tensor):
                    raise _differing(name)
                tensors.setdefault(name, tensor)
    return tree, tensors


def _write_state(
    store: Store,
    prefix: str,
    writer: Writer,
    tree: Any,
    share: Tensors,
    own: Tensors | None = None,
) -> tuple[CheckpointPart, ...]:
    """Writes a state in parts whose names begin with `prefix`, folder included."""
    number = f"{writer.replica}-of-{writer.replicas}"
    written = [_write_tensors(store, f"{prefix}part-{number}", share)]
    if own:
        written.append(_write_tensors(store, f"{prefix}{_OWN}{number}", own))
    if writer.replica == 0:
        text = json.dumps(tree, allow_nan=False).encode()
        written.append(_write(store, f"{prefix}{_TREE}", text))
    return tuple(written)


def _fields(part: CheckpointPart) -> dict[str, str | None]:
    """What the name of a part says: its `cut`, `stage` and `stages`, if any, and `what` it is."""
    found = _NAME.fullmatch(part.object.rpartition("/")[2])
    assert found is not None
    return found.groupdict()


def _differing(place: str) -> CheckpointError:
    return CheckpointError(
        f"the stages of the checkpoint differ in {place or 'their trees'}, which they should have "
        "in common: go on with the cut that it was written with"
    )


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same bits."""
    raw = [t.reshape(-1).view(torch.uint8) for t in (one, other)]
    return one.dtype is other.dtype and one.shape == other.shape and torch.equal(*raw)


def _owner(part: CheckpointPart) -> int | None:
    """The rank that a part is the own state of, if it is any's."""
    name = _fields(part)["what"] or ""
    return int(name.removeprefix(_OWN).split("-")[0]) if name.startswith(_OWN) else None


def _read(store: Store, part: CheckpointPart) -> bytes:
    data = store.get(part.object)
    if len(data) != part.size_bytes or digest_of(data) != part.digest:
        raise CheckpointError(
            f"{part.object} in {store} was damaged: {len(data)} bytes, digest "
            f"{digest_of(data)}, but {part.size_bytes} bytes, {part.digest} were written"
        )
    return data


def _read_tree(store: Store, part: CheckpointPart) -> Any:
    try:
        return parse(_read(store, part), f"{part.object} in {store}", _REMEDY)
    except RequestError as error:
        raise CheckpointError(str(error)) from error


def _read_tensors(store: Store, part: CheckpointPart) -> Tensors:
    """As `_read`, without a copy of the part beside its tensors."""
    fault: Exception | None = None
    try:
        info = store.stat(part.object)
        if info is not None and info.size_bytes == part.size_bytes:
            tensors, digest = read_shard(store, part.object, part.size_bytes)
            if digest == part.digest:
                return tensors
    except (ValueError, KeyError, TypeError, StoreError) as error:
        fault = error
    _read(store, part)  # says what is wrong with it
    raise CheckpointError(f"{part.object} in {store} cannot be read: {fault!r}") from fault


def _write_tensors(store: Store, name: str, tensors: Tensors) -> CheckpointPart:
    return CheckpointPart(name, *write_shard(store, name, tensors))


def _write(store: Store, name: str, data: bytes) -> CheckpointPart:
    store.put(name, data)
    return CheckpointPart(name, len(data), digest_of(data))
