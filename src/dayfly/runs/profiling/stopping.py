"""What ends a short run early; by itself, as workers import it with the job."""

from __future__ import annotations

import math
from typing import Any

from dayfly.callbacks.base import Callback, RunView

#: Why a run ended whose loss is NaN or infinite.
_NOT_FINITE = "not-finite"


class StopsAtNonFinite(Callback):
    """Ends a run whose validation loss is NaN or infinite: it comes to no target."""

    def on_epoch_end(self, run: RunView, record: dict[str, Any]) -> None:
        """Looks at the epoch's loss."""
        if not math.isfinite(record["val_loss"]):
            run.stop(_NOT_FINITE)
