"""What a run leaves in its directory when it ends: results, history, bill, weights."""

from __future__ import annotations

from collections.abc import Sequence

import safetensors
import safetensors.torch

from dayfly.catalogue.prices import FunctionPrices
from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.life.checkpoints import Checkpoint
from dayfly.life.metering import bill
from dayfly.runs.directory import write_json
from dayfly.runs.progress import Progress
from dayfly.runs.recorder import Recorder
from dayfly.runs.run import Result
from dayfly.train.replica import build_model, model_part
from dayfly.train.state import Tensors, load_model_tensors
from dayfly.wire.store import FileStore, StoreError


def write_results(
    store: FileStore,
    job: Job,
    checkpoint: Checkpoint,
    recorder: Recorder,
    prices: FunctionPrices,
    *,
    run_id: str,
    workers: int,
    status: str,
    error: str | None,
    wall_s: float,
) -> Result:
    """Write `history.json`, `bill.json` and, of a run that is done, `weights.safetensors`."""
    tree, tensors = checkpoints.read(store, checkpoint)
    history = Progress.load(tree["progress"]).history
    losses: Sequence[float | None] = [recorder.losses.get(s) for s in range(checkpoint.step)]
    redone = recorder.redone_steps
    write_json(
        store, "history.json", {"epochs": history, "step_loss": losses, "redone_steps": redone}
    )
    billed = bill(recorder.used, prices)
    write_json(store, "bill.json", billed.dump())
    if status == "done":
        _write_weights(store, job, model_part(tensors))
    last = history[-1] if history else {}
    return Result(
        run_id=run_id,
        status=status,
        error=error,
        epochs=len(history),
        steps=checkpoint.step,
        workers=workers,
        restarts=recorder.restarts,
        train_loss=last.get("train_loss"),
        val_loss=last.get("val_loss"),
        val_accuracy=last.get("val_accuracy"),
        wall_s=wall_s,
        step_s=recorder.median_step_s,
        billed_s=billed.billed_s,
        gb_s=billed.gb_s,
        cost_usd=billed.cost_usd,
        price_list=billed.price_list,
        **recorder.traffic,
    )


def _write_weights(store: FileStore, job: Job, tensors: Tensors) -> None:
    model = build_model(job)
    load_model_tensors(model, tensors)
    final = store.path("weights.safetensors")
    beside = final.with_suffix(".tmp")
    try:
        safetensors.torch.save_model(model, str(beside))
        beside.replace(final)
    except (OSError, safetensors.SafetensorError) as error:
        beside.unlink(missing_ok=True)
        raise StoreError(f"cannot write {final}: {error}") from error
