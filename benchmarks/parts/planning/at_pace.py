"""A profile as it would have been on a machine that is slower or faster by a factor. Pure."""

from __future__ import annotations

from dataclasses import replace

from dayfly.planning.profile import Figure, Pass, Profile, SizeProfile, Transfer
from dayfly.wire.streams import ServingThread


def at_pace(profile: Profile, factor: float) -> Profile:
    """The profile with all times of the CPU so many times as long.

    Start and end are mostly CPU, and count as such. Latencies, rates and memory stay as they are.
    """
    fit, store = profile.fit, profile.store
    if store is not None:
        store = ServingThread(
            cpu_s=factor * store.cpu_s,
            cpu_s_per_byte=factor * store.cpu_s_per_byte,
        )
    return replace(
        profile,
        sizes=tuple(_size(size, factor) for size in profile.sizes),
        fit=None if fit is None else replace(fit, a=factor * fit.a),
        store=store,
    )


def _size(size: SizeProfile, factor: float) -> SizeProfile:
    return replace(
        size,
        forward=tuple(line.times(factor) for line in size.forward),
        backward=tuple(line.times(factor) for line in size.backward),
        data=size.data.times(factor),
        apply=size.apply.times(factor),
        step_s=_times(size.step_s, factor),
        reduce_s_per_byte=factor * size.reduce_s_per_byte,
        up=_way(size.up, factor),
        down=_way(size.down, factor),
        sum_cpu_s=factor * size.sum_cpu_s,
        pass_cpu_s=factor * size.pass_cpu_s,
        stage_message_cpu_s=_scaled(size.stage_message_cpu_s, factor),
        init_s=_times(size.init_s, factor),
        start_s=_times(size.start_s, factor),
        end_s=_times(size.end_s, factor),
        passes=tuple(_pass(one, factor) for one in size.passes),
    )


def _way(way: Transfer, factor: float) -> Transfer:
    return replace(way, cpu_s=factor * way.cpu_s, cpu_s_per_byte=factor * way.cpu_s_per_byte)


def _pass(one: Pass, factor: float) -> Pass:
    return replace(
        one,
        forward=tuple(_times(figure, factor) for figure in one.forward),
        backward=tuple(_times(figure, factor) for figure in one.backward),
        data=_times(one.data, factor),
    )


def _times(figure: Figure, factor: float) -> Figure:
    return replace(
        figure,
        value=factor * figure.value,
        low=factor * figure.low,
        high=factor * figure.high,
    )


def _scaled(seconds: float | None, factor: float) -> float | None:
    return None if seconds is None else factor * seconds
