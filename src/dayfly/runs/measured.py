"""What a validation sends and holds: sums of all blocks, and what metrics are computed from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dayfly.batches import BLOCK_NUMBERS, validation_blocks
from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.runs.log_budget import MIB, RoundBytes
from dayfly.runs.settings import Settings

#: Bytes of a number that validation sums.
_NUMBER_BYTES = 8


@dataclass(frozen=True, slots=True)
class Measured:
    """Bytes of a validation. sums: of all workers. gathered: outputs and targets of all samples."""

    sums: int
    gathered: int

    def add_to(self, round_bytes: RoundBytes) -> RoundBytes:
        """What workers send in a round, with this validation."""
        return replace(round_bytes, measured=self.sums, gathered=self.gathered)


def measuring(job: Job, samples: int, row_bytes: int) -> Measured:
    """Returns what a job's validation sends.

    Args:
        job: whose metrics are measured.
        samples: of the validation set.
        row_bytes: outputs and targets of a sample, as metrics need them; 0 without metrics.
    """
    numbers = BLOCK_NUMBERS * len(validation_blocks(samples, job.batch_size)) + len(job.metrics)
    return Measured(_NUMBER_BYTES * numbers, samples * row_bytes)


def check_gathering(
    round_bytes: RoundBytes, settings: Settings, least_mib: Callable[[], float]
) -> None:
    """Checks that one function holds outputs and targets of the whole validation set.

    Args:
        round_bytes: of the job.
        settings: with the memory of its functions.
        least_mib: returns what a function takes without a model; asked if memory is limited.

    Raises:
        RequestError: the function that computes the metrics has less memory than it takes for sure.
    """
    staged = settings.stage_memory_mib
    memory_mib = staged[-1] if staged else settings.memory_mib
    gathered_mib = round_bytes.gathered / MIB
    # Of a cut model nobody knows here which part the last stage has.
    model_mib = 0.0 if settings.cut else round_bytes.summed / MIB
    if not gathered_mib or memory_mib is None:
        return
    torch_mib = least_mib()
    # Too little memory for PyTorch alone is refused for every job, in other words.
    if torch_mib <= memory_mib < torch_mib + model_mib + gathered_mib:
        raise RequestError(
            "the job's metrics need outputs and targets of all validation samples at one function: "
            f"they take {gathered_mib:.0f} MiB beside the model's {model_mib:.0f} MiB and "
            f"PyTorch's {torch_mib:.0f} MiB, and it has {memory_mib} MiB: raise "
            f"{'--stage-memory' if staged else '--memory'}, validate on fewer samples, or let the "
            "job's step return smaller outputs, such as the classes that are predicted"
        )
