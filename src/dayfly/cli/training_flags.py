"""Flags of how a job is trained."""

from __future__ import annotations

from dayfly.cli.flag import Flag

#: Of how a job is trained.
TRAINING_FLAGS = {
    "sync": Flag(str, "Protocol: bsp, hap (some workers lag a step) or local-sgd.", "bsp"),
    "shares": Flag(
        str,
        "Each worker's share of a batch, in relation to the others; 0: an aggregator that only "
        "sums; auto: by a profile, of hap.",
        "by each one's CPU",
        metavar="N,N,...|auto",
    ),
    "k": Flag(str, "Steps between two averages of local-sgd.", True, ("--k",), metavar="N|epoch"),
    "outer": Flag(
        str,
        "Optimizer that takes a step after local-sgd's k steps: nesterov is DiLoCo's.",
        "average: none, replicas become their mean",
        metavar="average|nesterov|momentum",
    ),
    "outer_lr": Flag(float, "Learning rate of the outer optimizer.", "0.7"),
    "outer_momentum": Flag(float, "Momentum of the outer optimizer.", "0.9"),
    "fragments": Flag(
        int,
        "Exchange an outer gradient in so many parts, beside the round's steps.",
        "all at the round's end",
        metavar="F",
    ),
    "overlap": Flag(
        int, "Inner steps after which the sum of a fragment is applied.", "1", metavar="T"
    ),
    "collective": Flag(
        str,
        "All-reduce algorithm: all-reduce, k-reduce, overlapped, pipelined, push-pull, "
        "ring, scatter-reduce.",
        "what suits the channel: overlapped over a store, scatter-reduce over "
        "files at any speed, ring over tcp://, push-pull over ps://",
    ),
    "aggregators": Flag(int, "Workers that sum, of k-reduce and hap.", metavar="K"),
    "compress": Flag(
        str,
        "Let gradients travel smaller, and less exactly.",
        "none",
        metavar="none|bf16|int8|int4|powersgd[:RANK]|topk:FRACTION[:exact]|significance:V",
    ),
    "virtual_workers": Flag(
        int, "Leaves of a batch: the same bits on any number of workers from 1 to V.", metavar="V"
    ),
    "precision": Flag(
        str,
        "Numbers in which forward passes and losses compute; fp16 scales its losses.",
        "fp32",
        metavar="fp32|bf16|fp16",
    ),
    "cut": Flag(
        str,
        "Cut the model into stages before these layers, counted from 0.",
        "one stage",
        metavar="L,L,...",
    ),
    "replicas": Flag(
        str, "Functions a stage: one number for all, or each stage's.", "1", metavar="R|R,R,..."
    ),
    "micro_batches": Flag(int, "Pieces of a worker's share of a batch.", "the job's accumulate"),
    "schedule": Flag(
        str, "Order of micro-batches: fill-drain, or 1f1b, which takes less memory.", "fill-drain"
    ),
    "stage_memory": Flag(
        str,
        "Memory of each stage's functions, in MiB.",
        metavar="MIB,MIB,...",
        setting="stage_memory_mib",
    ),
    "target_accuracy": Flag(float, "End once validation reaches it, such as 0.97."),
    "target_loss": Flag(float, "End once the validation loss is at most this."),
    "keep": Flag(
        str, "Keep the weights of the best epoch, too.", "the last step's alone", metavar="best"
    ),
    "monitor": Flag(
        str, "By which an epoch is the best, and for --patience.", "val_loss", metavar="NAME"
    ),
    "mode": Flag(str, "Of --monitor.", "min of losses, max of val_accuracy", metavar="min|max"),
    "patience": Flag(
        int, "End once so many validations brought nothing better.", "never", metavar="N"
    ),
    "log": Flag(
        list[str],
        "Log each epoch there; several times.",
        "none",
        metavar="csv|jsonl|tensorboard|mlflow|wandb[:PLACE]",
    ),
    "on_nan": Flag(
        str,
        "What a loss that becomes NaN or infinite does: fail the run, or be said only.",
        "stop",
        metavar="stop|warn",
    ),
    "checkpoint_every": Flag(
        float, "Longest time between run checkpoints, in s.", "60", setting="checkpoint_every_s"
    ),
}
