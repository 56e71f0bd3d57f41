"""What a run leaves in its directory when it ends: results, history, bill, weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import safetensors
import safetensors.torch

from dayfly.catalogue.metering import Bill, bill
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.life.commits import Checkpoint
from dayfly.runs.home import WEIGHTS
from dayfly.runs.progress import Progress
from dayfly.runs.recorder import Recorder
from dayfly.runs.result import Result, write_json
from dayfly.training.paged import paged
from dayfly.training.replica import build_model, model_part
from dayfly.training.state import Tensors, load_model_tensors
from dayfly.wire.stores.base import Store, StoreError


def write_results(
    store: Store,
    directory: Path,
    job: Job,
    checkpoint: Checkpoint,
    recorder: Recorder,
    platform: FunctionPlatform,
    summary: Result,
) -> Result:
    """Write `bill.json`, `history.json` and, of a run that is done, `weights.safetensors`.

    directory: of the run. platform: under whose prices. summary: what is known of the run
    otherwise; returned with the results filled in.
    """
    billed = bill(
        recorder.used,
        platform,
        moved=recorder.moved,
        stored_bytes=recorder.stored_bytes,
        coordinator=recorder.coordinator_used(),
    )
    write_json(store, "bill.json", billed.dump())
    with paged(directory, when=checkpoints.stages(checkpoint) > 1):
        tree, tensors = checkpoints.read(store, checkpoint)
        history = Progress.load(tree["progress"]).history
        losses = [recorder.losses.get(step) for step in range(checkpoint.step)]
        whole = {
            "epochs": history,
            "step_loss": losses,
            "redone_steps": recorder.redone_steps,
            "rollbacks": recorder.rollbacks,
        }
        write_json(store, "history.json", whole)
        if summary.status == "done":
            _write_weights(directory, job, model_part(tensors))
    last = history[-1] if history else {}
    return replace(
        with_bill(summary, billed, recorder),
        epochs=len(history),
        steps=checkpoint.step,
        restarts=recorder.restarts,
        train_loss=last.get("train_loss"),
        val_loss=last.get("val_loss"),
        val_accuracy=last.get("val_accuracy"),
        step_s=recorder.median_step_s,
    )


def with_bill(summary: Result, billed: Bill, recorder: Recorder) -> Result:
    """What is known of a run, with what it cost and moved filled in."""
    return replace(
        summary,
        billed_s=billed.billed_s,
        gb_s=billed.gb_s,
        cost_usd=billed.cost_usd,
        price_list=billed.price_list,
        bytes_up=recorder.traffic["bytes_up"],
        bytes_down=recorder.traffic["bytes_down"],
        requests=recorder.traffic["requests"],
    )


def _write_weights(directory: Path, job: Job, tensors: Tensors) -> None:
    model = build_model(job)
    load_model_tensors(model, tensors)
    final = directory / WEIGHTS
    beside = final.with_suffix(".tmp")
    try:
        safetensors.torch.save_model(model, str(beside))
        beside.replace(final)
    except (OSError, safetensors.SafetensorError) as error:
        beside.unlink(missing_ok=True)
        raise StoreError(f"cannot write {final}: {error}") from error
