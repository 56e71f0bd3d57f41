"""A run as one page of HTML: curves, bill, bytes, and what every worker did when."""

from dayfly.runs.report.page import write_report

__all__ = ["write_report"]
