"""What torch asks of a group beside its operations: names, timeouts, its end.

In the spelling of torch's C++ side, torch 2.13.
"""

# mypy: disable-error-code="override,assignment,no-untyped-call"
from __future__ import annotations

import datetime as dt
from types import FunctionType
from typing import Self, TypeVar

import torch
import torch.distributed as dist
from torch._C._dynamo import eval_frame

from dayfly.wire.process_group.member import Member

AnyClass = TypeVar("AnyClass", bound=type)


def passed_over(kind: AnyClass) -> AnyClass:
    """Let torch's compiler neither trace into the methods of a class, nor compile them.

    As `torch.compiler.disable`, without loading the compiler.
    """
    skip = eval_frame._FrameAction.SKIP
    for method in vars(kind).values():
        if isinstance(method, FunctionType):
            method._torchdynamo_disable = True  # type: ignore[attr-defined]
            method._torchdynamo_disable_msg = "it communicates"  # type: ignore[attr-defined]
            strategy = eval_frame._FrameExecStrategy(skip, skip)
            eval_frame.set_code_exec_strategy(method.__code__, strategy)
    return kind


@passed_over
class DescribedGroup(dist.ProcessGroup):
    """A group of which `member` is this one."""

    def __init__(self, member: Member) -> None:
        super().__init__(member.rank, member.size)  # type: ignore[call-arg]  # as plug-ins do
        self._rank, self._size = member.rank, member.size
        self._torch_name = member.name
        self._desc = ""
        self._member = member

    @property
    def closed(self) -> bool:
        """Whether it was destroyed."""
        return self._member.closed

    def getBackendName(self) -> str:
        """The name of the backend."""
        return "dayfly"

    def getGroupName(self) -> str:
        """Torch's name of the group."""
        return self._torch_name

    def setGroupName(self, name: str) -> None:
        """Called by torch once the group is made."""
        self._torch_name = name

    def getGroupDesc(self) -> str:
        """What the program calls the group."""
        return self._desc

    def setGroupDesc(self, desc: str) -> None:
        """Called by torch once the group is made."""
        self._desc = desc

    @property
    def _device_types(self) -> list[torch.device]:
        cuda = [torch.device("cuda")] if torch.cuda.is_available() else []
        return [torch.device("cpu"), *cuda]

    def _set_sequence_number_for_group(self) -> None:
        return None

    def _get_sequence_number_for_group(self) -> int:
        return self._member.number

    def monitored_barrier(
        self, timeout: dt.timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """`dist.monitored_barrier`: the first member tells which ranks did not come in time."""
        limit_s = self._member.timeout_s if timeout is None else timeout.total_seconds()
        self._member.monitored_barrier(limit_s, every_rank=wait_all_ranks)

    def set_timeout(self, timeout: dt.timedelta) -> None:
        """How long to wait for a message from now on."""
        self._member.set_timeout(timeout.total_seconds())

    def _get_backend(self, device: torch.device) -> Self:
        """What does the work for a device: this group itself."""
        return self

    def name(self) -> str:
        """Of the backend, as `_get_backend` gives it."""
        return self.getBackendName()

    def _set_default_timeout(self, timeout: dt.timedelta) -> None:
        self.set_timeout(timeout)

    def tidy(self) -> bool:
        """Once it is closed: drop what it left, if no member needs it; whether nothing is left."""
        return self._member.tidy()

    def shutdown(self) -> None:
        """`dist.destroy_process_group`."""
        self._member.close()

    def abort(self) -> None:
        """End what is under way, with an error."""
        self._member.abort()
