"""How a run's functions are billed: each generation's by its own price list and vCPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dayfly.catalogue.metering import Bill, MeteredInvocation, bill, with_vcpus
from dayfly.runs.function_resources import vcpus_sold
from dayfly.runs.functions import FunctionSettings, catalogue, price_list
from dayfly.specs.generations import Tariff


def tariff_of(settings: FunctionSettings) -> Tariff:
    """Returns the tariff of functions with these settings."""
    return Tariff(price_list=price_list(settings), vcpus=vcpus_sold(settings))


def billed(used: Sequence[MeteredInvocation], settings: FunctionSettings, **more: Any) -> Bill:
    """Returns the bill of invocations of one run.

    Args:
        used: of any of its generations.
        settings: of the last one, for what names no price list.
        more: as of `catalogue.metering.bill`.

    Raises:
        RequestError: the catalogue has no prices for this.
    """
    known, tariff = catalogue(settings), tariff_of(settings)
    invocations = with_vcpus(used, tariff.vcpus)
    return bill(invocations, known.platform(tariff.price_list), lists=known.platform, **more)
