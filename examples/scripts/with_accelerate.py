"""Handwritten digits with Hugging Face Accelerate, with gradients of two batches added up a step.

torchrun --standalone --nproc-per-node 4 examples/scripts/with_accelerate.py
dayfly run --workers 4 examples/scripts/with_accelerate.py

It goes on from its last checkpoint. It knows nothing of dayfly. Needs accelerate and scikit-learn.
"""

from pathlib import Path

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH = 5, 32
STATES = Path("accelerate")


def main():
    # The order of an epoch follows from the seed and its number, wherever training goes on.
    in_order = DataLoaderConfiguration(use_seedable_sampler=True)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, dataloader_config=in_order)
    set_seed(3)

    bunch = load_digits()
    x = torch.tensor(bunch.data, dtype=torch.float32) / 16
    y = torch.tensor(bunch.target)
    train = DataLoader(TensorDataset(x[:1536], y[:1536]), batch_size=BATCH, shuffle=True)
    held_out = DataLoader(TensorDataset(x[1536:], y[1536:]), batch_size=BATCH)

    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model, optimizer, train, held_out = accelerator.prepare(model, optimizer, train, held_out)

    # A state counts once it is whole: a process may die while it saves.
    saved = [int(mark.parent.name) for mark in STATES.glob("*/whole")]
    first = max(saved, default=0)
    if first:
        accelerator.load_state(STATES / str(first))

    for epoch in range(first, EPOCHS):
        train.set_epoch(epoch)
        for inputs, targets in train:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(inputs), targets)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        mean = accelerator.reduce(loss.detach(), reduction="mean")
        accelerator.print(f"epoch {epoch}: loss {mean:.5f}", flush=True)
        accelerator.save_state(STATES / str(epoch + 1))
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            (STATES / str(epoch + 1) / "whole").touch()

    right = count = 0
    for inputs, targets in held_out:
        with torch.no_grad():
            guesses = model(inputs).argmax(1)
        guesses, targets = accelerator.gather_for_metrics((guesses, targets))
        right += (guesses == targets).sum().item()
        count += len(targets)
    accelerator.print(f"accuracy {right / count:.4f} of {count}")
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        torch.save(accelerator.unwrap_model(model).state_dict(), "accelerate.pt")
    accelerator.end_training()


if __name__ == "__main__":
    main()
