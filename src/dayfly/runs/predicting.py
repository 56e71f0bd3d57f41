"""What a run takes, beforehand: the planner asked with the prices by which the run is billed."""

from __future__ import annotations

from dayfly.planning.plan import Plan
from dayfly.planning.predict import predict
from dayfly.planning.profile import Profile
from dayfly.runs.billing import catalogue, price_list
from dayfly.runs.planning import Wanted, configuration, plan_of
from dayfly.runs.settings import Settings


def predict_run(
    profile: Profile,
    settings: Settings,
    wanted: Wanted,
    *,
    prices: str | None = None,
    store: str | None = None,
) -> Plan:
    """What a run by these settings takes, as a plan.

    prices: name of the platform whose prices count; None: those by which the run is billed. store:
    whose prices the store's part has; None: it costs nothing, as in a run's own bill. Raises
    RequestError for what the profile or the catalogue does not have, or does not go together.
    """
    known = catalogue(settings)
    prediction = predict(
        profile,
        configuration(settings, wanted),
        known.platform(prices or price_list(settings)),
        known.store(store) if store is not None else None,
    )
    return plan_of(profile, settings, wanted, prediction)
