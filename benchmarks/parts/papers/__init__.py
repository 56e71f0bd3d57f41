"""The papers' comparisons at their scale, made again from the catalogue and schedules.

A paper's own method, and its peers, live here and not in the product.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.parts.papers import ce_scaling, fasdl, hydrozoa
from benchmarks.parts.papers.figure import Figure
from benchmarks.parts.papers.funcpipe import figures as funcpipe

#: By name, which is that of the picture.
FIGURES: dict[str, Callable[[], Figure]] = {
    "funcpipe-5": funcpipe.figure_5,
    "funcpipe-7": funcpipe.figure_7,
    "funcpipe-8": funcpipe.figure_8,
    "funcpipe-10": funcpipe.figure_10,
    "funcpipe-11": funcpipe.figure_11,
    "fasdl-3": fasdl.figure_3,
    "fasdl-13": fasdl.figure_13,
    "ce-scaling-table-2": ce_scaling.table_2,
    "ce-scaling-18": ce_scaling.figure_18,
    "hydrozoa-4": hydrozoa.figure_4,
    "hydrozoa-5": hydrozoa.figure_5,
    "hydrozoa-6": hydrozoa.figure_6,
    "hydrozoa-table-4": hydrozoa.table_4,
}
