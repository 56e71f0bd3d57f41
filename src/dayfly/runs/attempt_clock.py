"""Times of a worker's records by the coordinator's clock, whatever the clock of its machine shows.

    coordinator    invoked ........................ received
    worker                    at      at      at
    an hour ahead                                              at      at      at
    shifted                        at      at      at <- no record is later than its receipt
    an hour behind         at      at      at          <- nor earlier than the invocation

Nothing else is known of another machine's clock, and nothing else is needed: what causes something
comes before it. All records of an attempt are shifted alike, so that its steps keep their lengths.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Times of a record, in Unix seconds.
_TIMES = ("began", "at")


@dataclass(slots=True)
class AttemptClock:
    """The clock of one attempt's machine, beside the coordinator's.

    Args:
        invoked_at: when it was invoked, by the coordinator's clock, in Unix seconds.
        shift_s: what is added to the attempt's times. It changes only where a report proves it
            wrong.
    """

    invoked_at: float = -math.inf
    shift_s: float = 0.0

    def shifted(
        self, records: Sequence[Mapping[str, Any]], received_at: float
    ) -> list[dict[str, Any]]:
        """Returns the records of a report with their times by the coordinator's clock.

        Args:
            records: in order; those without a time get none.
            received_at: when the coordinator had the report, by its clock, in Unix seconds.
        """
        times = [
            float(record[name])
            for record in records
            for name in _TIMES
            if record.get(name) is not None
        ]
        if times:
            least_s, most_s = self.invoked_at - min(times), received_at - max(times)
            self.shift_s = min(max(self.shift_s, least_s), most_s)
        return [
            {name: self._bounded(name, value, received_at) for name, value in record.items()}
            for record in records
        ]

    def _bounded(self, name: str, value: Any, received_at: float) -> Any:
        """A clock that was set meanwhile fits no shift, so each time is bounded by itself, too."""
        if name not in _TIMES or value is None:
            return value
        return min(max(value + self.shift_s, self.invoked_at), received_at)
