"""`dayfly predict PROFILE.json`: what configurations of a profiled job take, before they run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from dayfly.catalogue.gpu import GpuRequest
from dayfly.cli.flags import function_settings, training_settings
from dayfly.cli.outcome import kind_in_words, narrow_table
from dayfly.cli.values import numbers
from dayfly.errors import RequestError
from dayfly.planning.configuration import Configuration
from dayfly.planning.function_kinds import memory_label
from dayfly.planning.intervals import how_sure
from dayfly.planning.memory import misfits
from dayfly.planning.plan import Plan, Prediction, Volume
from dayfly.planning.profile import Profile, read_profile
from dayfly.runs.plans import configuration_of, limits_of, settings_of, write_plan
from dayfly.runs.predict import own_store
from dayfly.runs.predict import predict as predict_one

#: Settings that say the memory of functions apart.
_OWN_MEMORY = {"stage_memory_mib", "each_memory_mib"}
#: Settings of which several may be asked for at once, with the heads of their columns.
_HEADS = {
    "workers": "workers",
    "memory_mib": "MiB",
    "collective": "collective",
    "micro_batches": "micro-batches",
}


def asked(context: typer.Context) -> tuple[dict[str, Any], dict[str, Sequence[Any]]]:
    """What the command's flags say: settings, and values of those of which there may be several.

    Raises RequestError for lists that are none.
    """
    given = function_settings(context, resumed=False) | training_settings(context)
    given.pop("gpu_share", None)  # here it is said with its type
    several: dict[str, Sequence[Any]] = {}
    for name, example in (("workers", "1,2,4"), ("memory", "512,1024"), ("micro_batches", "1,4")):
        if (text := context.params[name]) is not None:
            flag = f"--{name.replace('_', '-')}"
            setting = "memory_mib" if name == "memory" else name
            several[setting] = numbers(flag, text, example)
    if (text := context.params["each_memory"]) is not None:
        given["each_memory_mib"] = numbers("--each-memory", text, "1769,885,885")
        if "memory_mib" in several:
            raise RequestError("--memory and --each-memory: give one of them")
    if (names := context.params["collective"]) is not None:
        several["collective"] = names.split(",")
    return {name: value for name, value in given.items() if name not in several}, several


def predict(
    file: Path,
    given: Mapping[str, Any],
    several: Mapping[str, Sequence[Any]],
    of_the_job: Mapping[str, Any],
    *,
    curve: str | None = None,
    gpu: str | None = None,
    prices: str | None = None,
    store: str | None = None,
    output: Path | None = None,
    as_json: bool = False,
) -> None:
    """Print predictions: of one configuration all that is known, of several a row each.

    Args:
        given: settings.
        several: values of settings, each with each of the others.
        of_the_job: in place of what the profile says.
        curve: a run that says how many epochs the target among the settings takes.
        gpu: as of `GpuRequest.parse`.
        prices, store: names in the catalogue; without a store it is the one that the profile names
            as its channel, if it does and has prices.
        output: where the plan goes.

    Raises:
        RequestError: for what the profile does not have, or a plan of several.
    """
    profile = read_profile(file)
    reached = None
    if curve is not None:
        from dayfly.runs.choosing.reaching import epochs_by  # it reads runs

        targets = {name: given.get(name) for name in ("target_loss", "target_accuracy")}
        reached = epochs_by(curve, epochs=of_the_job.get("epochs"), **targets)
        of_the_job = {**of_the_job, "epochs": reached.epochs}
    if gpu is not None:
        given = {**given, **_share(profile, GpuRequest.parse(gpu))}
    if store is None:
        store = own_store(profile, given.get("catalogue"))
    rows = list(_rows(profile, given, several, of_the_job, prices, store))
    if output is not None:
        if len(rows) > 1:
            raise RequestError(
                f"--output {output}: a plan is of one configuration, and these are {len(rows)}: "
                f"give one value of {', '.join(_flags(several, profile, given))}"
            )
        write_plan(rows[0], output)
    if as_json:
        tree = {
            "job": profile.job,
            "predictions": [_tree(plan) for plan in rows],
            "epochs_to_target": None if reached is None else asdict(reached),
            "output": None if output is None else str(output),
        }
        print(json.dumps(tree, allow_nan=False))
        return
    if reached is not None:
        print(f"{'epochs':<17}{reached}")
    if len(rows) == 1:
        _print_one(rows[0], store)
        if output is not None:
            print(f"{'plan':<17}{output}")
    else:
        _print_table(rows, [name for name in _HEADS if _differs(rows, name)])


def _share(profile: Profile, asked: GpuRequest) -> dict[str, float]:
    """The setting of a share of the profile's GPU. Raises RequestError for another type."""
    has = profile.gpu
    if has is None or has.type != asked.type:
        raise RequestError(
            f"--gpu {asked.type}: the profile of {profile.job} is of functions with "
            f"{'no GPU' if has is None else f'a {has.type}'}: dayfly plan --gpu {asked.type} "
            "derives times on one, as dayfly profile --from-catalogue does"
        )
    return {} if asked.share is None else {"gpu_share": asked.share}


def _rows(
    profile: Profile,
    given: Mapping[str, Any],
    several: Mapping[str, Sequence[Any]],
    of_the_job: Mapping[str, Any],
    prices: str | None,
    store: str | None,
) -> Iterator[Plan]:
    lists = dict(several)
    if "memory_mib" not in lists and not given.keys() & _OWN_MEMORY:
        lists["memory_mib"] = [size.memory_mib for size in profile.sizes]
    for values in product(*lists.values()):
        asked = {**given, **dict(zip(lists, values, strict=True))}
        yield predict_one(profile, **of_the_job, **asked, prices=prices, price_store=store)


def _flags(
    several: Mapping[str, Sequence[Any]], profile: Profile, given: Mapping[str, Any]
) -> list[str]:
    names = [name for name, values in several.items() if len(values) > 1]
    own = given.keys() & _OWN_MEMORY
    if "memory_mib" not in several and not own and len(profile.sizes) > 1:
        names.append("memory_mib")
    return [f"--{name.removesuffix('_mib').replace('_', '-')}" for name in names]


def _differs(rows: Sequence[Plan], name: str) -> bool:
    return name in ("workers", "memory_mib") or len({_asked(plan, name) for plan in rows}) > 1


def _asked(plan: Plan, name: str) -> Any:
    settings = settings_of(plan)
    return settings.algorithm if name == "collective" else getattr(settings, name)


def _tree(plan: Plan) -> dict[str, Any]:
    assert plan.prediction is not None
    limits = limits_of(plan)
    return {
        "settings": plan.settings,
        "job": plan.job,
        "memory_limits_mib": limits,
        "fits": not _misfits(plan),
        "prediction": asdict(plan.prediction),
    }


def _misfits(plan: Plan) -> list[int]:
    """Stages that need more memory than their functions have."""
    assert plan.prediction is not None
    return misfits(plan.profile, configuration_of(plan), plan.prediction)


def _print_one(plan: Plan, store: str | None) -> None:
    said, asked = plan.prediction, configuration_of(plan)
    assert said is not None
    limits = limits_of(plan)
    steps = -(-plan.profile.samples // asked.batch_size)
    parts = ", ".join(f"{name} {_ms(part)}" for name, part in said.breakdown.items())
    dollars = ", ".join(
        f"{kind_in_words(kind)} ${usd:.8f}" for kind, usd in said.by_kind.items() if usd
    )
    rows = {
        "job": f"{plan.profile.job}, batches of {asked.batch_size}, over {plan.profile.channel}",
        "functions": _functions(plan),
        "step": f"{_ms(said.step_s)}: {parts}",
        "epoch": f"{said.epoch_s:.4g} s, {steps} steps",
        "start-up time": _seconds(said.startup_s),
        "training time": f"{_seconds(said.train_s)}, {asked.epochs} "
        f"epoch{'s' * (asked.epochs > 1)}",
        "total time": f"{said.total_s:.4g} s, {said.invocations} invocations",
        "bill": f"${said.cost_usd:.8f} as on {said.price_list}, store {store or 'free'}: "
        f"{said.billed_s:.1f} s billed, {said.gb_s:.1f} GB-s",
        "": dollars,
        "memory": _memory(said, limits, asked),
        **_on_gpu(plan, said),
        "step's traffic": _moved(said.step_volume),
        "run's traffic": _moved(said.run_volume),
        "how sure": how_sure(said),
    }
    for name, value in rows.items():
        print(f"{name:<17}{value}")
    for warning in said.warnings:
        print(f"{'warning':<17}{warning}")


def _functions(plan: Plan) -> str:
    settings, asked = settings_of(plan), configuration_of(plan)
    if asked.cut:
        micros = f"{asked.micro_batches} micro-batch{'es' * (asked.micro_batches > 1)}"
        return (
            f"{asked.stages} stages of {asked.layout.in_words} at layers "
            f"{','.join(map(str, asked.cut))}, {micros}, {asked.schedule}; sums by "
            f"{settings.algorithm}"
        )
    how = f"{asked.sync}, {settings.algorithm}" if asked.workers > 1 else asked.sync
    if asked.aggregators is not None:
        how += f" at {asked.aggregators}"
    if asked.shares:
        how += f", shares {','.join(map(str, asked.shares))}"
    sizes = dict.fromkeys(asked.memory_mib)
    return f"{asked.workers} of {', '.join(map(memory_label, sizes))}, {how}"


def _memory(said: Prediction, limits: Sequence[int | None], c: Configuration) -> str:
    words = []
    for kind, (peak, limit) in enumerate(zip(said.memory_mib, limits, strict=True)):
        of = "" if limit is None else f" of {limit}"
        name = f"{_kind(c, kind)}: " if len(limits) > 1 else ""
        wrong = ", DOES NOT FIT" if limit is not None and peak > limit else ""
        words.append(f"{name}{peak:.0f}{of} MiB{wrong}")
    return "; ".join(words)


def _kind(c: Configuration, kind: int) -> str:
    """A stage, or workers that are alike."""
    if c.cut:
        return f"stage {kind}"
    ranks = c.kinds[kind]
    whole = len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1
    named = f"{ranks[0]} to {ranks[-1]}" if whole else ", ".join(map(str, ranks))
    return f"rank{'s' * (len(ranks) > 1)} {named}"


def _on_gpu(plan: Plan, said: Prediction) -> dict[str, str]:
    """What its functions hold on GPUs; nothing, if they have none."""
    gpu, c = plan.profile.gpu, configuration_of(plan)
    if gpu is None or c.gpu_share is None:
        return {}
    room = c.gpu_share * gpu.memory_mib
    wrong = ", DOES NOT FIT" if max(said.gpu_memory_mib) > room else ""
    each = ", ".join(f"{peak:.0f}" for peak in said.gpu_memory_mib)
    return {"GPU": f"{c.gpu_share:g} of a {gpu.type}: {each} of {room:.0f} MiB{wrong}"}


def _moved(volume: Volume) -> str:
    return (
        f"{volume.bytes_up / 1e6:.3f} MB up, {volume.bytes_down / 1e6:.3f} MB down, "
        f"{volume.puts} puts, {volume.gets} gets"
    )


def _print_table(rows: Sequence[Plan], names: Sequence[str]) -> None:
    assert rows[0].prediction is not None
    title = f"{rows[0].profile.job}, prices of {rows[0].prediction.price_list}"
    table = narrow_table(title)
    heads = ("step ms", "total s", "USD", "peak MiB", "fits")
    for head in (*(_HEADS[name] for name in names), *heads):
        table.add_column(head, justify="right", no_wrap=True)
    for plan in rows:
        said = plan.prediction
        assert said is not None
        limits = limits_of(plan)
        asked = {
            **{name: str(_asked(plan, name)) for name in names},
            "memory_mib": ",".join("any" if one is None else str(one) for one in limits),
        }
        table.add_row(
            *(asked[name] for name in names),
            f"{said.step_s * 1000:.4g}",
            f"{said.total_s:.4g}",
            f"{said.cost_usd:.7f}",
            ",".join(f"{peak:.0f}" for peak in said.memory_mib),
            "no" if _misfits(plan) else "yes",
        )
    Console().print(table)
    said_of_all = [plan.prediction.warnings for plan in rows if plan.prediction is not None]
    for warning in dict.fromkeys(one for said in said_of_all for one in said):
        print(f"warning: {warning}")


def _seconds(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds:.4g} s"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.4g} ms"
