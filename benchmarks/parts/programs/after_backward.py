"""What DDP's overlap is compared with: the same gradients, communicated after the backward pass.

    ddp             | forward | backward ====|          buckets are summed while it still runs
                                 |b0|b1|  |b2|
    one by one      | forward | backward ====||b0|  |b1|  |b2|       each waited for
    all at once     | forward | backward ====||b0|b1|b2|             begun together
    flat            | forward | backward ====||b0 b1 b2|             one buffer, and copied back
    each gradient   | forward | backward ====||g|  |g|  |g|  |g| ... each waited for
    alone           | forward | backward ====|                       nothing

The first three have DDP's own buckets: a hook takes them as they are full, and sends nothing.
"""

# No annotations from the future: DDP looks at those of a hook, and wants types.

from typing import Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

How = Literal["ddp", "one by one", "all at once", "flat", "each gradient", "alone"]


class AfterBackward:
    """model: the same weights in every process. x (B, ...), y (B,): this process's samples.

    bucket_mib: DDP's `bucket_cap_mb`. buckets: bytes of each, in the last step.
    """

    def __init__(
        self,
        model: nn.Module,
        x: torch.Tensor,
        y: torch.Tensor,
        lr: float,
        *,
        how: How,
        bucket_mib: float,
    ) -> None:
        self._how = how
        self._full: list[torch.Tensor] = []
        self._model = model
        self._parameters = list(model.parameters())
        if how in ("ddp", "one by one", "all at once"):
            wrapped = DistributedDataParallel(
                model, bucket_cap_mb=bucket_mib, gradient_as_bucket_view=True
            )
            if how != "ddp":
                wrapped.register_comm_hook(self._full, _keep)
            self._model = wrapped
        self._optimizer = torch.optim.SGD(self._parameters, lr=lr)
        self._x, self._y = x, y
        self.buckets: list[int] = []

    def step(self) -> float:
        self._optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self._model(self._x), self._y)
        loss.backward()
        self._communicate()
        self._optimizer.step()
        return loss.item()

    def _communicate(self) -> None:
        """Replace each gradient by the mean over all processes."""
        n = dist.get_world_size()
        match self._how:
            case "one by one":
                for bucket in self._full:
                    dist.all_reduce(bucket)
                    bucket.div_(n)
            case "all at once":
                works = [dist.all_reduce(bucket, async_op=True) for bucket in self._full]
                for work, bucket in zip(works, self._full, strict=True):
                    work.wait()
                    bucket.div_(n)
            case "flat":
                gradients = [one.grad for one in self._parameters if one.grad is not None]
                flat = torch.cat([one.flatten() for one in gradients])
                dist.all_reduce(flat)
                flat.div_(n)
                pieces = flat.split([one.numel() for one in gradients])
                for gradient, piece in zip(gradients, pieces, strict=True):
                    gradient.copy_(piece.view_as(gradient))
            case "each gradient":
                for one in self._parameters:
                    if one.grad is not None:
                        dist.all_reduce(one.grad)
                        one.grad.div_(n)
        self.buckets = [bucket.nbytes for bucket in self._full] or self.buckets
        self._full.clear()


def _keep(full: list[torch.Tensor], bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """DDP's hook. Its gradients are views of the bucket, so what is done to that reaches them."""
    full.append(bucket.buffer())
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done
