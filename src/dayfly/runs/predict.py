"""`dayfly.predict`: what a run takes, beforehand, with the prices by which the run is billed."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from dayfly.catalogue.lookup import Catalogue
from dayfly.planning.plan import Plan
from dayfly.planning.predict import predict as predicted
from dayfly.planning.profile import Profile, read_profile
from dayfly.runs.even_shares import even_shares
from dayfly.runs.functions import catalogue, price_list
from dayfly.runs.keywords import AUTO, SettingKeywords, check_keywords, shows
from dayfly.runs.plans import JobSpec, configuration, plan_of, profile_settings
from dayfly.runs.settings import Settings


@shows(SettingKeywords)
def predict(
    profile: Profile | str | Path,
    *,
    epochs: int | None = None,
    batch_size: int | None = None,
    prices: str | None = None,
    price_store: str | None = None,
    **settings: Unpack[SettingKeywords],
) -> Plan:
    """Predicts what a run of a profiled job takes: seconds, dollars, memory, requests.

    Args:
        profile: what `dayfly.profile` returned, or the file of one.
        epochs: passes over the data, in place of the profile's.
        batch_size: samples of a step, in place of the profile's.
        prices: platform of the catalogue whose price list counts; None: as a run is billed.
        price_store: store of the catalogue whose prices count; None: the profile's channel, if it
            is one of the catalogue with prices.
        settings: those of `dayfly.train`, such as `workers` and `memory_mib`; see
            `dayfly.runs.settings.Settings`. None: as if it was not given. The memory may be left
            out if the profile has one size.

    Returns:
        A plan, whose `prediction` has `step_s`, `total_s`, `cost_usd`, `memory_mib` and more. It
        goes to `dayfly.train(job, plan=...)` and `dayfly.simulate`; a file of one has
        `plan.text()`.

    Raises:
        RequestError: the profile or the catalogue lacks what is asked for, or settings do not go
            together.

    Examples:
        >>> plan = dayfly.predict(profile, workers=2)
        >>> plan.prediction.step_s < plan.prediction.total_s
        True
        >>> dayfly.predict(profile, worker=2)
        Traceback (most recent call last):
        ...
        dayfly.errors.RequestError: there is no setting worker: do you mean workers?
    """
    check_keywords(settings, Settings, beside=predict)
    check_keywords({"epochs": epochs, "batch_size": batch_size}, JobSpec)
    known = profile if isinstance(profile, Profile) else read_profile(Path(profile).expanduser())
    asked = {name: value for name, value in settings.items() if value is not None}
    memory = {"memory_mib", "stage_memory_mib", "each_memory_mib"}
    if not asked.keys() & memory and len(known.sizes) == 1:
        asked["memory_mib"] = known.sizes[0].memory_mib
    own = profile_settings(known, asked)
    own = {name: value for name, value in own.items() if value is not None}
    wanted = JobSpec.profiled(known, epochs=epochs, batch_size=batch_size)
    if own.get("shares") == AUTO:
        rest = Settings(**{name: value for name, value in own.items() if name != "shares"})
        own["shares"] = even_shares(known, rest, wanted)
    return predict_run(
        known,
        Settings(**own),
        wanted,
        prices=prices,
        store=price_store or own_store(known, settings.get("catalogue")),
    )


def own_store(profile: Profile, own: str | None) -> str | None:
    """Name of the store that a profile names as its channel; None without prices.

    Args:
        profile: of a job.
        own: directory of a catalogue of the user's.
    """
    known = Catalogue(Path(own) if own is not None else None)
    if not known.has_store(profile.channel):
        return None
    facts = known.store(profile.channel)
    return None if facts.usd_per_put is None or facts.usd_per_get is None else facts.name


def predict_run(
    profile: Profile,
    settings: Settings,
    wanted: JobSpec,
    *,
    prices: str | None = None,
    store: str | None = None,
) -> Plan:
    """Predicts what a run by these settings takes, as a plan.

    Args:
        profile: of the job.
        settings: of the run.
        wanted: of the job.
        prices: name of the platform whose prices count; None: those by which the run is billed.
        store: whose prices the store's part has; None: it costs nothing, as in a run's own bill.

    Raises:
        RequestError: the profile or the catalogue lacks what is asked for, or it does not go
            together.
    """
    known = catalogue(settings)
    prediction = predicted(
        profile,
        configuration(settings, wanted),
        known.platform(prices or price_list(settings)),
        known.store(store) if store is not None else None,
    )
    return plan_of(profile, settings, wanted, prediction)
