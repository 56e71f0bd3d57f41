"""Flags of `dayfly plan`: what the choice is among, and which plan of the front is chosen."""

from __future__ import annotations

from collections.abc import Mapping

from dayfly.cli.flag import Flag

_FOR_A_JOB = "of a job; one for all, or one a platform"
#: By name.
CHOICE: Mapping[str, Flag] = {
    "platform": Flag(
        str,
        "Platforms of the catalogue; local: the job is measured on this machine.",
        "the profiles'",
        metavar="NAME,NAME,...",
    ),
    "gpu": Flag(
        str,
        "GPU of functions, as T4 or T4:0.25; without --platform all platforms that have it.",
        "what the platform has",
        metavar="TYPE[:SHARE]",
    ),
    "store": Flag(
        str,
        "Stores of the catalogue; vm-m5-large:2: two servers of that type; 'vm-*': type and number "
        "are chosen; tcp://: containers that reach each other.",
        "the profile's, or those of the platform's provider",
        ("--price-store", "--store"),
        metavar="NAME,NAME,...",
    ),
    "deadline": Flag(str, "Choose the cheapest within it: 90, 90s, 30m or 2h.", metavar="TIME"),
    "budget": Flag(float, "Choose the fastest within it.", metavar="USD"),
    "weights": Flag(str, "Choose the least A1 dollars + A2 seconds.", metavar="A1,A2"),
    "objective": Flag(str, "Choose the fastest of all, or the cheapest.", metavar="time|cost"),
    "workers": Flag(int, "Functions at once, at most.", "64"),
    "vcpus": Flag(
        float,
        "vCPUs that all functions have together, at most, as Fargate's quota.",
        "for a profile of this machine its cores",
    ),
    "memory": Flag(
        str,
        "Memory sizes to choose among.",
        "all of the profile's, or usual ones of the platform",
        metavar="MIB,MIB,...",
    ),
    "epochs": Flag(int, "Passes over the data.", "the job's"),
    "target_loss": Flag(float, "End once the validation loss is at most this."),
    "target_accuracy": Flag(float, "End once validation reaches it, such as 0.97."),
    "curve": Flag(
        str,
        "Run whose validations say how many epochs the target takes.",
        "--epochs, or the job's",
        metavar="RUN",
    ),
    "sync": Flag(
        str,
        "Training methods to choose among: bsp, local-sgd:K, nesterov:K, with +int8 or another "
        "--compress; hap, or hap:AGGREGATORS. Each has as many epochs as come to the loss of bsp.",
        "bsp",
        metavar="METHOD,METHOD,...",
    ),
    "fragments": Flag(
        str,
        "Of methods with an outer optimizer: parts in which outer gradients are streamed, to "
        "choose among; none: all at once, at a round's end.",
        "as the methods' names have it",
        metavar="F,F,...",
    ),
    "overlap": Flag(
        str,
        "Inner steps after which the sum of a fragment is applied, to choose among.",
        "1",
        metavar="T,T,...",
    ),
    "compress": Flag(
        str,
        "Compressions to choose among, each with each method that can have it.",
        "as the methods' names have it",
        metavar="none|bf16|int8|int4|topk:FRACTION|...,...",
    ),
    "batch_size": Flag(
        str,
        "Samples a step, all workers', to choose among; each with as many epochs as come to the "
        "loss of the job's batch.",
        "the job's",
        metavar="N,N,...",
    ),
    "efficiency": Flag(
        str,
        "Times the samples of bsp at the job's batch that a method takes, or a batch: "
        "local-sgd:8=1.3, or @512=1.2.",
        "the profile's, or 1",
        metavar="NAME=FACTOR,...",
    ),
    "most_batch_size": Flag(
        int,
        "Choose the batch, too, up to so many samples, as FasDL does.",
        "the batch is the job's",
    ),
    "micro_batches": Flag(
        str,
        "Micro-batches of a step, all replicas' together, to choose among.",
        "such as have 4 samples",
        metavar="N,N,...",
    ),
    "merge_layers": Flag(
        str,
        "Search cuts between so many layers at most: neighbours become one, of equal time, "
        "parameters or activations.",
        "256:time",
        metavar="N[:BY]",
    ),
    "collective": Flag(
        str,
        "All-reduce algorithms of models that are not cut, to choose among.",
        "all",
        metavar="NAME,NAME,...",
    ),
    "time_limit": Flag(
        float, "CPU time of search and re-ranking, at most, about.", "10", metavar="S"
    ),
    "flops_per_vcpu": Flag(
        str,
        f"What training gets out of a vCPU, {_FOR_A_JOB}.",
        "the catalogue's",
        metavar="GFLOP/S,...",
    ),
    "cold_start": Flag(
        str,
        f"From the request to the handler, {_FOR_A_JOB}.",
        "the catalogue's, or 0",
        metavar="S,...",
    ),
    "uplink": Flag(
        str,
        f"Bandwidth of a function's connection to the store, {_FOR_A_JOB}.",
        "the catalogue's",
        metavar="MB/S,...",
    ),
    "downlink": Flag(str, "The same from the store.", "the catalogue's", metavar="MB/S,..."),
    "latency": Flag(
        str,
        "Of a request, of a job; one for all, or one a store.",
        "the catalogue's",
        metavar="MS,...",
    ),
    "base_memory": Flag(
        float,
        "A worker's memory without a model, in MiB, of a job.",
        "a process's on this machine",
    ),
}
