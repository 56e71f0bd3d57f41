"""The groups in which `--help` lists flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: By the head of a group, the names of parameters; others stand before all groups.
GROUPS: Mapping[str, Sequence[str]] = {
    "Training": (
        *("sync", "k", "outer", "outer_lr", "outer_momentum", "fragments", "overlap"),
        *("precision", "compress", "on_nan"),
        "checkpoint_every",
        *("target_accuracy", "target_loss", "keep", "monitor", "mode", "patience", "log"),
    ),
    "Stages of a cut model": ("cut", "replicas", "micro_batches", "schedule", "stage_memory"),
    "Functions": (
        *("workers", "platform", "platform_option", "memory", "cpu", "gpu", "lifetime", "shares"),
        *("virtual_workers", "cold_start", "payload", "imitate", "allow_other_cpu"),
    ),
    "Messages": (
        *("channel", "collective", "aggregators", "uplink", "downlink", "latency"),
        *("log_budget", "wait_timeout"),
    ),
    "Convergence, by short runs": (
        *("convergence", "short_workers", "short_epochs", "seeds", "tolerance", "short_time"),
    ),
    "Limits of the run": ("max_cost", "max_time", "coordinator_lifetime"),
}
#: The head under which a parameter stands.
GROUP_OF: Mapping[str, str] = {name: head for head, names in GROUPS.items() for name in names}
