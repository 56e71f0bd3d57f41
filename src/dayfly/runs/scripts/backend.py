"""The backend `dayfly` of torch.distributed, which `import torch` finds by its entry point.

Under `dayfly run` a process has an endpoint of the run's wire. Elsewhere, as under torchrun, each
group of all ranks makes one: rank 0 makes the channel that DAYFLY_CHANNEL names (messages in
memory, for processes of this machine, if it names none) and tells the others where it is through
the store that torch was given.

Loaded whenever torch is: what it needs is imported when a group is made.
"""

from __future__ import annotations

from typing import Any

NAME = "dayfly"


def register() -> None:
    """Make the backend known to torch.distributed, for GPUs too if torch was built for them."""
    import torch
    import torch.distributed as dist

    cuda: bool = torch.backends.cuda.is_built()  # type: ignore[no-untyped-call]
    if dist.is_available() and NAME.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(
            NAME, make_group, extended_api=True, devices=["cpu", "cuda"] if cuda else ["cpu"]
        )


def make_group(options: Any, backend_options: Any) -> Any:
    """A group for torch.

    Args:
        options: torch's `_DistributedBackendOptions`.
    """
    from dayfly.runs.scripts.standalone import join_alone, leave_alone
    from dayfly.wire.process_group.endpoint import joined, new_group

    if not (ranks := list(options.global_ranks_in_group)):  # of the world, maybe another by now
        leave_alone()
        ranks = list(range(options.group_size))
    if joined() is None:
        join_alone(options.store, options.group_rank, options.group_size)
    return new_group(options.group_id, ranks, options.timeout.total_seconds())
