"""Run checkpoints: one step, all of the run's state, in shards that the workers write.

    checkpoint/000000120/tree.json            what is not a tensor, by rank 0
    checkpoint/000000120/part-0-of-4          safetensors, by rank 0
    ...
    checkpoint/000000120/own-0-of-4           safetensors, rank 0's alone, if it has such
    checkpoint/latest.json                    the commit, by the coordinator: step, parts, digests

Replicas are equal, so the state is written once: each rank writes its share of the tensors. What
is a rank's own, such as a residual of compression, nobody else reads. The
checkpoint counts from the moment when `latest.json` names it; until then the one before it does.
A part that is written twice is written with the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import safetensors.torch
import torch
import xxhash

from dayfly.errors import DayflyError
from dayfly.wire.store import FileStore

Tensors = dict[str, torch.Tensor]

_LATEST = "checkpoint/latest.json"
#: How the names of parts begin that are a rank's own.
_OWN = "own-"


class CheckpointError(DayflyError):
    """A checkpoint is not there, or is not what was written."""


@dataclass(frozen=True, slots=True)
class Part:
    """A written object of a checkpoint, and how to know it again."""

    object: str
    size_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A committed checkpoint: the state before step `step`."""

    step: int
    parts: tuple[Part, ...]


def shares(sizes: Mapping[str, int], parts: int) -> tuple[tuple[str, ...], ...]:
    """Names in `parts` groups of nearly equal size: the largest first, to the smallest group."""
    groups: list[list[str]] = [[] for _ in range(parts)]
    loads = [0] * parts
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        least = loads.index(min(loads))
        groups[least].append(name)
        loads[least] += sizes[name]
    return tuple(tuple(sorted(group)) for group in groups)


def share_of(rank: int, world_size: int, tensors: Tensors) -> Tensors:
    """Copies of the tensors that this rank writes: as they are now, whatever becomes of them."""
    mine = shares({name: t.nbytes for name, t in tensors.items()}, world_size)[rank]
    return {name: tensors[name].clone(memory_format=torch.contiguous_format) for name in mine}


def write_share(
    store: FileStore,
    step: int,
    rank: int,
    world_size: int,
    tree: Any,
    share: Tensors,
    own: Tensors | None = None,
) -> tuple[Part, ...]:
    """Write this rank's part of the state before `step`; returns what was written.

    share: from `share_of`. tree: what is not a tensor, which rank 0 writes. own: what only this
    rank has.
    """
    folder = f"checkpoint/{step:09d}"
    data = safetensors.torch.save(share)
    written = [_write(store, f"{folder}/part-{rank}-of-{world_size}", data)]
    if own:
        name = f"{folder}/{_OWN}{rank}-of-{world_size}"
        written.append(_write(store, name, safetensors.torch.save(own)))
    if rank == 0:
        text = json.dumps(tree, allow_nan=False).encode()
        written.append(_write(store, f"{folder}/tree.json", text))
    return tuple(written)


def commit(store: FileStore, step: int, parts: Sequence[Part]) -> Checkpoint:
    """Make the parts the latest checkpoint."""
    checkpoint = Checkpoint(step, tuple(sorted(parts, key=lambda part: part.object)))
    store.put(_LATEST, json.dumps(asdict(checkpoint)).encode())
    return checkpoint


def latest(store: FileStore) -> Checkpoint | None:
    """The committed checkpoint, if there is one."""
    if not store.exists(_LATEST):
        return None
    try:
        return load(json.loads(store.get(_LATEST)))
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{_LATEST} in {store.root} was damaged: {error!r}") from error


def load(tree: Mapping[str, Any]) -> Checkpoint:
    """From what `asdict` gave, by way of JSON."""
    return Checkpoint(tree["step"], tuple(Part(**part) for part in tree["parts"]))


def read(store: FileStore, checkpoint: Checkpoint) -> tuple[Any, Tensors]:
    """The state in a checkpoint: tree and tensors, without what is a rank's own.

    Raises CheckpointError if it was damaged.
    """
    tree: Any = None
    tensors: Tensors = {}
    for part in checkpoint.parts:
        if _owner(part) is not None:
            continue
        data = _read(store, part)
        if part.object.endswith(".json"):
            tree = json.loads(data)
        else:
            tensors.update(safetensors.torch.load(data))
    return tree, tensors


def read_own(
    store: FileStore, checkpoint: Checkpoint, rank: int, world_size: int
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
    return tuple(safetensors.torch.load(_read(store, part)) for _, part in mine)


def discard_others(store: FileStore, keep: Checkpoint) -> None:
    """Remove the checkpoints before `keep`."""
    for name in store.names("checkpoint"):
        if name.isdigit() and int(name) < keep.step:
            store.delete(f"checkpoint/{name}")


def tidy(store: FileStore, keep: Checkpoint) -> None:
    """Remove all that is not part of `keep`, once nobody writes: what killed writers left."""
    known = {part.object for part in keep.parts}
    mine = f"{keep.step:09d}"
    for folder in store.names("checkpoint"):
        if folder.isdigit() and folder != mine:
            store.delete(f"checkpoint/{folder}")
    for name in store.names(f"checkpoint/{mine}"):
        if (whole := f"checkpoint/{mine}/{name}") not in known:
            store.delete(whole)


def _owner(part: Part) -> int | None:
    """The rank that a part is the own state of, if it is any's."""
    name = part.object.rpartition("/")[2]
    return int(name.removeprefix(_OWN).split("-")[0]) if name.startswith(_OWN) else None


def _read(store: FileStore, part: Part) -> bytes:
    data = store.get(part.object)
    if len(data) != part.size_bytes or _digest(data) != part.digest:
        raise CheckpointError(
            f"{part.object} in {store.root} was damaged: {len(data)} bytes, digest "
            f"{_digest(data)}, but {part.size_bytes} bytes, {part.digest} were written"
        )
    return data


def _write(store: FileStore, name: str, data: bytes) -> Part:
    store.put(name, data)
    return Part(name, len(data), _digest(data))


def _digest(data: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(data)
