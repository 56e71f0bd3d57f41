"""`dayfly profile`: measures a job, or looks it up in the catalogue, and writes `profile.json`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from dayfly.catalogue.gpu import GpuRequest
from dayfly.catalogue.lookup import Catalogue
from dayfly.cli.catalogue import ASSUMED, own_catalogue
from dayfly.cli.convergence import show_convergence
from dayfly.cli.convergence_flags import convergence_asked
from dayfly.cli.outcome import DONE, ActionFailure, attempt, narrow_table
from dayfly.cli.values import numbers
from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.planning.catalogued import Assumed
from dayfly.planning.choose.front import counted
from dayfly.planning.gpus import DERIVED
from dayfly.planning.profile import Figure, Profile, SizeProfile, dump_profile, profile_text
from dayfly.runs.api import checked_settings, overridden
from dayfly.runs.display import Lines, StandardError
from dayfly.runs.profiling import measuring
from dayfly.runs.profiling.from_catalogue import base_mib, catalogued_profile
from dayfly.runs.shipping import load_job_file
from dayfly.runs.whole_files import replacing

#: Layers that are shown; the others are in the file.
_SHOWN = 30


def measure(
    job_file: Path,
    output: Path,
    memory: str | None,
    asked: Callable[[], Mapping[str, Any]],
    *,
    batch_size: int | None,
    quick: bool,
    repeat: int = 1,
    force: bool,
    as_json: bool,
    catalogued: Mapping[str, Any],
) -> int:
    """Measure, write and show; returns the exit code.

    Args:
        asked: what the flags say of functions.
        catalogued: all flags; with --from-catalogue nothing is measured, but looked up.
    """

    def action() -> Profile:
        settings = dict(asked())
        text = settings.pop("gpu_share", None)  # here it is said with its type
        gpu = None if text is None else GpuRequest.parse(text)
        sizes = () if memory is None else numbers("--memory", memory, "512,1024")
        looked_up, short = check_flags(catalogued), convergence_asked(catalogued)
        checked = None
        if not looked_up:
            if gpu is not None:
                settings["gpu_share"] = gpu.share or 1.0
            checked = checked_settings(**settings)
            for size in sizes:
                checked_settings(**{**settings, "memory_mib": size})  # refuses what is no size
        job = overridden(load_job_file(job_file), batch_size=batch_size)
        name, code = job_file.stem, job_file.resolve().parent
        if short is not None:
            short.check(job)
        write = _kept(output, force=force)
        with _shown(StandardError()) as (told, note):
            if checked is None:
                profile = profile_from_catalogue(job, name, sizes, catalogued, gpu)
            else:
                profile = measuring.profile(
                    job,
                    checked,
                    sizes,
                    name=name,
                    code=code,
                    gpu=None if gpu is None else gpu.type,
                    quick=quick,
                    repeat=repeat,
                    told=told,
                    note=note,
                )
            write(profile_text(profile))
            if short is not None:
                from dayfly.runs.profiling.convergence import convergence  # it trains

                found = convergence(
                    job, profile.samples, short, name=name, code=code, told=told, note=note
                )
                profile = replace(profile, convergence=found)
                write(profile_text(profile))
        return profile

    profile = attempt(action)
    failed = profile if isinstance(profile, ActionFailure) else None
    if as_json:
        whole = {
            "status": "done" if failed is None else failed.status,
            "error": None if failed is None else failed.error,
            "output": str(output),
            "profile": None if isinstance(profile, ActionFailure) else dump_profile(profile),
        }
        print(json.dumps(whole, allow_nan=False), flush=True)
    elif not isinstance(profile, ActionFailure):
        show(profile, Console())
        print(f"written to {output}", flush=True)
    return DONE if failed is None else failed.code


def _kept(output: Path, *, force: bool) -> Callable[[str], None]:
    """A way to write the file, whole or not at all; tried before anything is measured.

    Raises RequestError if it cannot be written, or is there already.
    """
    if output.exists() and not force:
        raise RequestError(f"{str(output)!r} is there already: name another --output, or --force")
    try:
        if output.is_dir():
            raise IsADirectoryError(0, "it is a directory")
        with suppress(_Tried), replacing(output) as beside:
            beside.touch()
            raise _Tried
    except OSError as error:
        raise RequestError(
            f"--output {str(output)!r} cannot be written: {error.strerror}: name another file"
        ) from error

    def write(text: str) -> None:
        try:
            with replacing(output) as beside:
                beside.write_text(text)
        except OSError as error:
            raise RequestError(
                f"--output {str(output)!r} cannot be written: {error.strerror}"
            ) from error

    return write


class _Tried(Exception):
    """A file could be written, and is not."""


@contextmanager
def _shown(console: Console) -> Iterator[tuple[Callable[[str], None], Callable[[str], None]]]:
    """How to tell what is being measured, and what else is to be known."""
    lines = Lines(console)
    if not console.is_terminal:
        yield lines.note, lines.note
        return
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("checking the job", total=None)
        yield lambda text: progress.update(task, description=text), lines.note


def show(profile: Profile, console: Console) -> None:
    """Layers, sizes and channel as tables."""
    for table in (_layers(profile), _sizes(profile)):
        console.print(table)
    if profile.fit is not None:
        fit = profile.fit
        off = f", within {fit.error:.1%} of what was measured" if profile.how == "measured" else ""
        console.print(
            "fitted for B samples a step and M MiB of memory (FasDL, equation 4): a step computes "
            f"{fit.a:.4g} {_shifted('B', fit.b)} / {_shifted('M', fit.m)} s{off}",
            highlight=False,
        )
    if profile.gpu is not None:
        how = DERIVED if profile.gpu.derived else "measured"
        console.print(f"passes are on a {profile.gpu.type}: {how}", highlight=False)
    if profile.how == "measured":
        console.print(f"profiling took {profile.took_s:.0f} s", highlight=False)
    if profile.convergence is not None:
        show_convergence(profile.convergence, console)


def _layers(profile: Profile) -> Table:
    samples = _most(profile.sizes[0])
    table = narrow_table(f"{profile.job}: layers, activations and output of one sample")
    table.add_column("layer", overflow="fold")
    for name in ("parameters", "activations", "output"):
        table.add_column(name, justify="right", no_wrap=True)
    for size in profile.sizes:
        table.add_column(_memory(size), justify="right")
    for number, layer in enumerate(profile.layers[:_SHOWN]):
        sizes = (layer.parameters, layer.activations, layer.output)
        times = (
            " + ".join(_ms(side[number](samples)) for side in (size.forward, size.backward))
            for size in profile.sizes
        )
        table.add_row(Text(layer.name), *map(_bytes, sizes), *times)
    if (more := len(profile.layers) - _SHOWN) > 0:
        table.add_row(f"and {more} more")
    of = counted(samples, "sample")
    table.caption = f"by memory: ms of a forward pass + ms of a backward pass, of {of}"
    table.caption_justify = "left"
    return table


def _sizes(profile: Profile) -> Table:
    table = narrow_table("functions, and their connection to the store")
    table.add_column("", min_width=24)
    for size in profile.sizes:
        table.add_column(_memory(size), justify="right")
    trained = sum(layer.trained for layer in profile.layers)
    rows: dict[str, Callable[[SizeProfile], str]] = {
        "CPU, cores": lambda size: "any" if size.cpu_cores is None else f"{size.cpu_cores:.3g}",
        "forward and backward, ms": _computing,
        "reading samples, ms": lambda size: _ms(size.data(_most(size))),
        "optimizer's step, ms": lambda size: _ms(size.apply(trained)),
        "rest of a step, ms": lambda size: _spread(size.step_s),
        "beside messages a pass takes": lambda size: f"x {size.beta.value:.2f}",
        "beside other functions it takes": lambda size: (
            f"x {size.crowd.value:.2f}" if size.crowd_cores else "not measured"
        ),
        "variation of a pass": lambda size: f"{100 * size.jitter:.1f}%",
        "start of a function, ms": lambda size: _spread(size.init_s),
        "from there to the first step, ms": lambda size: _spread(size.start_s),
        "from the last step to its end, ms": lambda size: _spread(size.end_s),
        "memory without a model, MiB": lambda size: f"{size.base_mib.value:.0f}",
        "latency up, ms": lambda size: _spread(size.up.latency_s),
        "latency down, ms": lambda size: _spread(size.down.latency_s),
        "throughput up, MB/s": lambda size: _rate(size.up.peak_bytes_per_s),
        "throughput down, MB/s": lambda size: _rate(size.down.peak_bytes_per_s),
    }
    for name, cell in rows.items():
        table.add_row(name, *(cell(size) for size in profile.sizes))
    return table


def _shifted(name: str, by: float) -> str:
    return f"({name} + {by:.4g})" if by else name


def _most(size: SizeProfile) -> int:
    return size.passes[-1].samples if size.passes else 1


def _computing(size: SizeProfile) -> str:
    """Of as many samples as were measured, with the quartiles of each layer added up."""
    if not size.passes:
        return _ms(sum(line(1) for line in (*size.forward, *size.backward)))
    figures = (*size.passes[-1].forward, *size.passes[-1].backward)
    low, high = sum(one.low for one in figures), sum(one.high for one in figures)
    return _spread(Figure(size.passes[-1].compute_s, low, high, figures[0].count))


def _memory(size: SizeProfile) -> str:
    memory = "any memory" if size.memory_mib is None else f"{size.memory_mib} MiB"
    return memory if size.gpu_share is None else f"{memory}, {size.gpu_share:g} GPU"


def _spread(figure: Figure) -> str:
    """In ms, with the quartiles."""
    if figure.count < 2:
        return _ms(figure.value)
    return f"{_ms(figure.value)} ({_ms(figure.low)}-{_ms(figure.high)})"


def _ms(seconds: float) -> str:
    ms = 1000 * seconds
    return f"{ms:.3g}" if ms < 999.5 else f"{ms:.0f}"


def _rate(figure: Figure) -> str:
    return f"{figure.value / 1e6:.4g}"


def _bytes(count: float) -> str:
    for unit, size in (("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


#: Flags of a platform that is looked up, and of one that is measured, alone.
_OF_ROWS = ("store", "flops_per_vcpu", "threads", "beta", "cold_start", "base_memory")
_OF_MEASURING = ("channel", "imitate", "wait_timeout", "quick", "repeat")


def check_flags(flags: Mapping[str, Any]) -> bool:
    """Whether a profile is to be made from the catalogue.

    Raises RequestError for flags that say nothing then, or otherwise.
    """
    looked_up = bool(flags["from_catalogue"])
    for flag in _OF_MEASURING if looked_up else _OF_ROWS:
        if flags.get(flag) not in (None, False):
            raise RequestError(
                f"{_flag(flag)} is for a profile that is "
                + (
                    "measured: leave out --from-catalogue"
                    if looked_up
                    else "looked up: add --from-catalogue"
                )
            )
    return looked_up


def profile_from_catalogue(
    job: Job,
    name: str,
    memory_mib: tuple[int, ...],
    flags: Mapping[str, Any],
    gpu: GpuRequest | None = None,
) -> Profile:
    """The job's profile on the platform and over the store that the flags name.

    Args:
        name: the job's.
        flags: by their names with underscores; None: not given. platform, store: names of the
            catalogue. cpu: vCPUs. uplink, downlink: MB/s. latency: ms. cold_start: s.
            flops_per_vcpu: GFLOP/s. base_memory: MiB, measured if it is not given. threads, beta:
            as `Assumed`. own: the user's own catalogue.
        gpu: that the platform is to have.

    Raises:
        RequestError: for what is missing, not known, or cannot be.
    """
    for flag, example in (("platform", "aws-lambda"), ("store", "s3")):
        if flags.get(flag) is None:
            raise RequestError(
                f"--from-catalogue needs {_flag(flag)}: give a name of dayfly catalogue, as "
                f"{example}"
            )
    if not memory_mib:
        raise RequestError("--from-catalogue needs --memory: give sizes in MiB, as 1769,3538")
    given = {
        assumed: flags[flag] * unit
        for flag, (assumed, unit) in ASSUMED.items()
        if flags.get(flag) is not None
    }
    base = flags.get("base_memory")
    directory = own_catalogue(flags.get("own"))
    return catalogued_profile(
        job,
        name=name,
        platform=flags["platform"],
        store=flags["store"],
        memory_mib=memory_mib,
        assumed=Assumed(base_mib=base_mib() if base is None else base, **given),
        catalogue=Catalogue(Path(directory).expanduser() if directory is not None else None),
        gpu=gpu,
    )


def _flag(name: str) -> str:
    """As the command line has it."""
    return "--price-store" if name == "store" else f"--{name.replace('_', '-')}"
