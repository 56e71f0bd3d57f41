"""The papers' comparisons at their scale, made again from the catalogue and schedules.

A paper's own method, and its peers, live here and not in the product.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.parts.papers import ce_one_store, ce_scaling, ce_workflows, kubeml
from benchmarks.parts.papers.fasdl import comparisons, invoking
from benchmarks.parts.papers.fasdl import figures as fasdl
from benchmarks.parts.papers.figure import Figure
from benchmarks.parts.papers.funcpipe import bandwidth, breakdown, optimizers, overall, scaling
from benchmarks.parts.papers.hydrozoa import figures as hydrozoa
from benchmarks.parts.papers.hydrozoa import hybrid, on_gpus

#: By name, which is that of the picture.
FIGURES: dict[str, Callable[[], Figure]] = {
    "funcpipe-5": overall.figure_5,
    "funcpipe-6": breakdown.figure_6,
    "funcpipe-7": scaling.figure_7,
    "funcpipe-8": scaling.figure_8,
    "funcpipe-9": optimizers.figure_9,
    "funcpipe-10": overall.figure_10,
    "funcpipe-11": bandwidth.figure_11,
    "fasdl-vii": invoking.section_7,
    "fasdl-3": fasdl.figure_3,
    "fasdl-10": comparisons.figure_10,
    "fasdl-11": comparisons.figure_11,
    "fasdl-13": fasdl.figure_13,
    "fasdl-14": comparisons.figure_14,
    "ce-scaling-table-2": ce_scaling.table_2,
    "ce-scaling-9": ce_workflows.figure_9,
    "ce-scaling-12": ce_workflows.figure_12,
    "ce-scaling-18": ce_one_store.figure_18,
    "kubeml-tables": kubeml.tables,
    "kubeml-13": kubeml.figure_13,
    "hydrozoa-4": hydrozoa.figure_4,
    "hydrozoa-5": hydrozoa.figure_5,
    "hydrozoa-6": hydrozoa.figure_6,
    "hydrozoa-7": on_gpus.figure_7,
    "hydrozoa-table-4": hybrid.table_4,
    "hydrozoa-table-5": on_gpus.table_5,
}
