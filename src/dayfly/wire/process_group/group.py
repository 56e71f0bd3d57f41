"""torch.distributed's view of the wire: each of its operations, on tensors of any form.

This is the one place that follows torch's plug-in surface, which is experimental: torch 2.13.

    caller's thread     checks, stages tensors that are not plain memory, asks for its turn
    lane's thread       runs the collective (`collectives`), puts results back
    a stream's thread   the same for messages between two members (`p2p`)
    callback's thread   what users hang on futures (`work`)
"""

# mypy: disable-error-code="override,assignment,no-untyped-call"
from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist

from dayfly.wire.buffers import JoinedBuffer
from dayfly.wire.process_group.described import DescribedGroup, passed_over
from dayfly.wire.process_group.member import Member
from dayfly.wire.process_group.operations import (
    DayflyWork,
    Reduction,
    SeveralWorks,
    StagedTensor,
    reduction,
)
from dayfly.wire.process_group.sparse import check_sparse, sum_sparse
from dayfly.wire.schedule import Span

Tensor = torch.Tensor
#: Sums of at most so many bytes are kept alive until so many newer ones exist.
_SMALL_BYTES, _SMALL_WORKS = 16, 32


@passed_over
class DayflyGroup(DescribedGroup):
    """A group as torch sees it, of whose members this is one.

    After an operation failed all later ones fail, as members would be out of step.
    """

    def __init__(self, member: Member) -> None:
        super().__init__(member)
        # DDP's reducer keeps torch's half of a work, whose other half Python would drop: that of
        # the one number by which ranks tell each other of uneven inputs.
        self._small: deque[DayflyWork] = deque(maxlen=_SMALL_WORKS)

    # Collectives.

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> DayflyWork:
        """`dist.all_reduce`, and DDP."""
        work = self._reduce_all(tensors, opts or dist.AllreduceOptions())
        if sum(tensor.numel() * tensor.itemsize for tensor in tensors) <= _SMALL_BYTES:
            self._small.append(work)
        return work

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> DayflyWork:
        """Several all-reduces as one."""
        return self._reduce_all(tensors, opts or dist.AllreduceCoalescedOptions())

    def broadcast(self, tensors: list[Tensor], opts: Any = None) -> DayflyWork:
        """`dist.broadcast`."""
        (tensor,) = tensors
        root = opts.rootRank if opts is not None else 0
        staged = StagedTensor(tensor, read=root == self._rank, write=root != self._rank)

        def run(number: int) -> None:
            self._member.collectives.broadcast(staged.flat(), number, root)

        return self._member.collective(
            "broadcast", [staged], tensors, run, meet=False, stays_bytes=tensor.nbytes
        )

    def reduce(self, tensors: list[Tensor], opts: Any) -> DayflyWork:
        """`dist.reduce`."""
        (tensor,) = tensors
        root, how = opts.rootRank, reduction(opts.reduceOp, self._size)
        staged = StagedTensor(tensor, write=root == self._rank)

        def run(number: int) -> None:
            flat = how.view(staged.flat())
            # What others have in theirs stays as it was.
            flat = flat if root == self._rank else flat.clone()
            self._member.collectives.reduce(flat, number, how.fold, root)
            how.finish(flat)

        return self._member.collective(f"reduce {how.name}", [staged], tensors, run)

    def allgather(
        self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None
    ) -> DayflyWork:
        """`dist.all_gather`."""
        (outs,), (own,) = outputs, inputs
        if len({out.numel() for out in outs}) > 1:
            return self._exchange("all-gather", [own] * self._size, outs, list(outs), meet=True)
        return self._gather_all(outs, own, list(outs))

    def all_gather_single(self, output: Tensor, own: Tensor, opts: Any = None) -> DayflyWork:
        """`dist.all_gather_into_tensor`, and FSDP2."""
        return self._gather_all([output], own, [output])

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> DayflyWork:
        """Several of them as one."""
        pairs = zip(outputs, inputs, strict=True)
        return SeveralWorks([self.all_gather_single(out, own) for out, own in pairs])

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather_coalesced(
        self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None
    ) -> DayflyWork:
        """`dist.all_gather_coalesced`: outputs[r] is what comes from member r."""
        pairs = zip(zip(*outputs, strict=True), inputs, strict=True)
        return SeveralWorks([self._gather_all(list(o), own, list(o)) for o, own in pairs])

    def reduce_scatter(
        self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any
    ) -> DayflyWork:
        """`dist.reduce_scatter`."""
        (output,), (blocks,) = outputs, inputs
        return self._scatter_reduced(output, blocks, opts)

    def reduce_scatter_single(self, output: Tensor, blocks: Tensor, opts: Any) -> DayflyWork:
        """`dist.reduce_scatter_tensor`, and FSDP2."""
        return self._scatter_reduced(output, [blocks], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any
    ) -> DayflyWork:
        """Several of them as one."""
        pairs = zip(outputs, inputs, strict=True)
        return SeveralWorks([self.reduce_scatter_single(out, b, opts) for out, b in pairs])

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> DayflyWork:
        """`dist.all_to_all`."""
        return self._exchange("all-to-all", inputs, outputs, list(outputs), meet=True)

    def all_to_all_single(
        self,
        output: Tensor,
        given: Tensor,
        output_splits: list[int],
        input_splits: list[int],
        opts: Any = None,
    ) -> DayflyWork:
        """`dist.all_to_all_single`."""
        sends, receives = self._rows(given, input_splits), self._rows(output, output_splits)
        return self._exchange("all-to-all", sends, receives, [output], meet=True)

    alltoall_base = all_to_all_single

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> DayflyWork:
        """`dist.gather`."""
        root, (own,) = opts.rootRank, inputs
        sends = [own if member == root else None for member in range(self._size)]
        receives = outputs[0] if root == self._rank else [None] * self._size
        value = [*outputs[0]] if outputs else []
        return self._exchange("gather", sends, receives, value, meet=False)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> DayflyWork:
        """`dist.scatter`."""
        root, (own,) = opts.rootRank, outputs
        sends = inputs[0] if root == self._rank else [None] * self._size
        receives = [own if member == root else None for member in range(self._size)]
        return self._exchange("scatter", sends, receives, outputs, meet=False)

    def barrier(self, opts: Any = None) -> DayflyWork:
        """`dist.barrier`."""
        work = self._member.collective("barrier", [], [], self._member.collectives.barrier)
        if opts is not None and opts.timeout.total_seconds() > 0:
            work.limit(opts.timeout)
        return work

    # Messages between two members.

    def send(self, tensors: list[Tensor], to: int, tag: int) -> DayflyWork:
        """`dist.isend`."""
        (tensor,) = tensors
        staged = StagedTensor(tensor, write=False)
        what = f"send to {to}, tag {tag}"
        send = partial(self._member.p2p.send, to=to, tag=tag)
        return self._member.p2p_work(what, staged, send)

    def recv(self, tensors: list[Tensor], source: int, tag: int) -> DayflyWork:
        """`dist.irecv`."""
        (tensor,) = tensors
        staged = StagedTensor(tensor, read=False)
        what = f"receive from {source}, tag {tag}"
        return self._member.p2p_work(
            what, staged, partial(self._member.p2p.recv, source=source, tag=tag)
        )

    def recv_anysource(self, tensors: list[Tensor], tag: int) -> DayflyWork:
        """`dist.irecv` from anybody."""
        (tensor,) = tensors
        staged = StagedTensor(tensor, read=False)
        what = f"receive from anybody, tag {tag}"
        receive = partial(self._member.p2p.recv_any, tag=tag)
        return self._member.p2p_work(what, staged, receive)

    # Several operations as one.

    def _start_coalescing(self, device: torch.device) -> None:
        self._member.coalesced = []

    def _end_coalescing(self, device: torch.device) -> DayflyWork:
        works, self._member.coalesced = self._member.coalesced or [], None
        return SeveralWorks(works)

    # How the operations are made.

    def _reduce_all(self, tensors: list[Tensor], opts: Any) -> DayflyWork:
        how = reduction(opts.reduceOp, self._size)
        if any(tensor.layout is not torch.strided for tensor in tensors):
            return self._reduce_sparse(tensors, how)
        kinds = dict.fromkeys(tensor.dtype for tensor in tensors)
        if len(kinds) == 1:
            return self._reduce_alike(tensors, how)
        alike = [[one for one in tensors if one.dtype is dtype] for dtype in kinds]
        return SeveralWorks([self._reduce_alike(some, how) for some in alike], tensors)

    def _reduce_alike(self, tensors: list[Tensor], how: Reduction) -> DayflyWork:
        """Of one type; several travel as one."""
        how.check(tensors[0].dtype)
        staged = [StagedTensor(tensor) for tensor in tensors]

        def run(number: int) -> None:
            flats = [how.view(one.flat()) for one in staged]
            whole = flats[0] if len(flats) == 1 else torch.cat(flats)
            self._member.collectives.all_reduce(whole, number, how.fold)
            how.finish(whole)
            if len(flats) > 1:
                for flat, part in zip(flats, whole.split([len(f) for f in flats]), strict=True):
                    flat.copy_(part)

        return self._member.collective(f"all-reduce {how.name}", staged, tensors, run)

    def _reduce_sparse(self, tensors: list[Tensor], how: Reduction) -> DayflyWork:
        check_sparse(tensors, how)

        def run(number: int) -> None:
            sum_sparse(tensors[0], self._member.collectives, number, self._rank, self._size)

        return self._member.collective(f"all-reduce {how.name}", [], tensors, run)

    def _gather_all(self, outs: list[Tensor], own: Tensor, value: list[Tensor]) -> DayflyWork:
        """Gathers `own` of all members into `outs`: one tensor a member, or one for all."""
        given = StagedTensor(own, write=False)
        staged = [StagedTensor(out, read=False) for out in outs]

        def run(number: int) -> None:
            flats = [one.flat() for one in staged]
            whole = flats[0] if len(flats) == 1 else JoinedBuffer(flats)
            _fill(_block(whole, self._rank, self._size), given.flat())
            self._member.collectives.all_gather(whole, number)

        return self._member.collective("all-gather", [given, *staged], value, run)

    def _scatter_reduced(self, output: Tensor, blocks: list[Tensor], opts: Any) -> DayflyWork:
        """Reduces `blocks`, one a member or one for all, and keeps this member's in `output`."""
        how = reduction(opts.reduceOp, self._size)
        how.check(output.dtype)
        out = StagedTensor(output, read=False)
        staged = [StagedTensor(block, write=False) for block in blocks]

        def run(number: int) -> None:
            total = how.view(out.flat())
            flats = [how.view(one.flat()) for one in staged]
            whole = flats[0] if len(flats) == 1 else JoinedBuffer(flats)
            parts = [_block(whole, member, self._size) for member in range(self._size)]
            _fill(total, parts[self._rank])
            # The sum is made in the output, and what was given stays as it was.
            parts[self._rank] = total
            self._member.collectives.reduce_scatter(JoinedBuffer(parts), number, how.fold)
            how.finish(total)

        return self._member.collective(f"reduce-scatter {how.name}", [out, *staged], [output], run)

    def _exchange(
        self,
        name: str,
        sends: Sequence[Tensor | None],
        receives: Sequence[Tensor | None],
        value: list[Tensor],
        *,
        meet: bool,
    ) -> DayflyWork:
        """Exchanges `sends` for `receives` with each member; `meet`: all take part."""
        to = {m: StagedTensor(t, write=False) for m, t in enumerate(sends) if t is not None}
        of = {m: StagedTensor(t, read=False) for m, t in enumerate(receives) if t is not None}

        def run(number: int) -> None:
            sent = {member: one.flat() for member, one in to.items()}
            received = {member: one.flat() for member, one in of.items()}
            if self._rank in sent:
                _fill(received.pop(self._rank), sent.pop(self._rank))
            flats = [*sent.values(), *received.values()]
            if not flats:
                return
            ends = list(accumulate(map(len, flats)))
            spans = [Span(end - len(flat), end) for end, flat in zip(ends, flats, strict=True)]
            self._member.collectives.exchange(
                name,
                JoinedBuffer(flats),
                number,
                dict(zip(sent, spans, strict=False)),
                dict(zip(received, spans[len(sent) :], strict=True)),
                meet=len(received) == self._size - 1,
            )

        return self._member.collective(name, [*to.values(), *of.values()], value, run, meet=meet)

    def _rows(self, tensor: Tensor, splits: Sequence[int]) -> list[Tensor]:
        """The part of each member, along the first dimension."""
        if not splits:
            if len(tensor) % self._size:
                raise ValueError(f"{len(tensor)} rows are not {self._size} equal parts")
            splits = [len(tensor) // self._size] * self._size
        return list(tensor.split(list(splits)))


def _block(whole: Tensor | JoinedBuffer, member: int, size: int) -> Tensor:
    """A member's block of several equal ones."""
    length = len(whole) // size
    return whole[member * length : (member + 1) * length]


def _fill(into: Tensor, given: Tensor) -> None:
    if len(into) != len(given):
        raise ValueError(f"{len(given)} elements are given for {len(into)}")
    if into.data_ptr() != given.data_ptr():
        into.copy_(given)
