"""Which price list a run has, and which catalogue."""

from __future__ import annotations

from pathlib import Path

from dayfly.catalogue.lookup import Catalogue
from dayfly.runs.functions import FunctionSettings


def price_list(settings: FunctionSettings) -> str:
    """Name of the platform under whose prices a run is billed."""
    return settings.imitate or "aws-lambda"


def catalogue(settings: FunctionSettings) -> Catalogue:
    """The catalogue with the rows of the user's own that the run was asked to use."""
    return Catalogue(Path(settings.catalogue) if settings.catalogue is not None else None)
