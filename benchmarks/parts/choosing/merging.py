"""FuncPipe's merging of layers by time, without which its program takes hours (section 4).

How many are left the paper does not print.
"""

from __future__ import annotations

from dayfly.planning.choose.pipelines.merging import MergedLayers, Merging
from dayfly.planning.choose.pipelines.problem import StagesOverStore


def merged(problem: StagesOverStore, groups: int | None) -> MergedLayers:
    """At most so many layers; None: all stay, as they do if there are no more."""
    return MergedLayers.of(problem, None if groups is None else Merging(groups))
