"""What a validation sends and holds: sums of all blocks, and what metrics are computed from."""

from __future__ import annotations

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


def measuring(
    job: Job, settings: Settings, samples: int, row_bytes: int, state_bytes: int
) -> Measured:
    """Returns what a job's validation sends.

    Args:
        job: whose metrics are measured.
        settings: with the memory of the functions.
        samples: of the validation set.
        row_bytes: outputs and targets of a sample, as metrics need them; 0 without metrics.
        state_bytes: of the whole model and its optimizer's state.

    Raises:
        RequestError: one function cannot hold outputs and targets of all samples.
    """
    numbers = BLOCK_NUMBERS * len(validation_blocks(samples, job.batch_size)) + len(job.metrics)
    gathered = samples * row_bytes
    # Of a cut model the last stage has a part, of which nobody knows yet how large it is.
    model = 0 if settings.cut else state_bytes
    memory_mib = settings.stage_memory_mib[-1] if settings.stage_memory_mib else settings.memory_mib
    # One that does not even hold the model is refused for that, by whoever starts functions.
    if memory_mib is not None and model <= memory_mib * MIB < model + gathered:
        flag = "--stage-memory" if settings.stage_memory_mib else "--memory"
        raise RequestError(
            f"the job's metrics need outputs and targets of all {samples} validation samples at "
            f"one function, {gathered / MIB:.0f} MiB, which with the model takes more than its "
            f"{memory_mib} MiB: raise {flag}, validate on fewer samples, or let the job's step "
            "return smaller outputs, such as the classes that are predicted"
        )
    return Measured(_NUMBER_BYTES * numbers, gathered)
