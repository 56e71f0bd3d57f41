"""Flags of the functions that a run has, and of where and how long they run."""

from __future__ import annotations

from dayfly.cli.flag import Flag

#: Of a run's functions, by the names of parameters.
FUNCTION_FLAGS = {
    "workers": Flag(int, "Functions that work at once.", "1"),
    "platform": Flag(str, "Where functions run: local.", "local"),
    "platform_option": Flag(
        list[str],
        "A setting of the platform's own, instead of its table in dayfly.toml; several times.",
        "the platform's",
        metavar="NAME=VALUE",
        setting="platform_options",
    ),
    "channel": Flag(str, "URL of the channel they talk through.", "files in memory"),
    "memory": Flag(
        str,
        "A function's memory, in MiB; or each worker's, with commas.",
        "not limited",
        metavar="MIB[,MIB,...]",
        setting="memory_mib",
    ),
    "lifetime": Flag(float, "A function's life, in s.", "not limited", setting="lifetime_s"),
    "cpu": Flag(
        float, "A function's CPU time a second, in cores.", "not limited", setting="cpu_cores"
    ),
    "uplink": Flag(
        float,
        "Bandwidth of a function's connection to the store, in MB/s.",
        "not limited",
        setting="uplink_mb_per_s",
    ),
    "downlink": Flag(float, "The same from the store.", "not limited", setting="downlink_mb_per_s"),
    "latency": Flag(
        float, "Added to each request to the store, in ms.", "none", setting="latency_ms"
    ),
    "cold_start": Flag(
        float, "Added to each start of a function, in s.", "none", setting="cold_start_s"
    ),
    "payload": Flag(
        float,
        "Largest payload and result of a call, in KB.",
        "not limited",
        setting="payload_kb",
    ),
    "gpu": Flag(
        float,
        "A function's share of a GPU, such as 1 or 0.25.",
        "none: it computes on the CPU",
        metavar="SHARE",
        setting="gpu_share",
    ),
    "imitate": Flag(
        str,
        "Platform, such as aws-lambda, whose life, CPU and bandwidth (by --memory), "
        "payload and prices count where no other is given.",
    ),
    "allow_other_cpu": Flag(
        bool,
        "Go on with another CPU type, torch build or threads; the bits may be others then.",
        "refused",
        ("--allow-other-cpu",),
    ),
    "wait_timeout": Flag(
        float,
        "How long a worker waits for a message of another, in s.",
        "900",
        setting="wait_timeout_s",
    ),
    "log_budget": Flag(
        int,
        "Bound of the message log, in MiB.",
        "1024 or a quarter of the space",
        setting="log_budget_mib",
    ),
    "max_cost": Flag(
        float,
        "Stop before the run's functions cost more, over all its lives, in USD.",
        "not limited",
        metavar="USD",
        setting="max_cost_usd",
    ),
    "max_time": Flag(
        str,
        "Stop after so long, over all its lives: 90, 90s, 30m or 2h.",
        "not limited",
        metavar="TIME",
        setting="max_time_s",
    ),
    "coordinator_lifetime": Flag(
        float,
        "Hand the run over to another coordinator before this one is so old, in s.",
        "not limited",
        metavar="S",
        setting="coordinator_lifetime_s",
    ),
}
