"""Handwritten digits with Lightning Fabric: the launcher's environment decides how many processes.

torchrun --standalone --nproc-per-node 4 examples/scripts/with_fabric.py
dayfly run --workers 4 examples/scripts/with_fabric.py

It knows nothing of dayfly. Needs lightning-fabric and scikit-learn.
"""

import os

import torch
from lightning_fabric import Fabric
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH = 5, 32


def main():
    processes = int(os.environ.get("WORLD_SIZE", 1))
    fabric = Fabric(accelerator="cpu", devices=processes, strategy="ddp")
    fabric.launch()
    fabric.seed_everything(3)

    bunch = load_digits()
    x = torch.tensor(bunch.data, dtype=torch.float32) / 16
    y = torch.tensor(bunch.target)
    loader = DataLoader(TensorDataset(x[:1536], y[:1536]), batch_size=BATCH, shuffle=True)
    loader = fabric.setup_dataloaders(loader)

    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model, optimizer = fabric.setup(model, optimizer)

    for epoch in range(EPOCHS):
        loader.sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
        mean = fabric.all_reduce(loss.detach(), reduce_op="mean")
        if fabric.is_global_zero:
            print(f"epoch {epoch}: loss {mean:.5f}", flush=True)

    with torch.no_grad():
        right = (model(x[1536:]).argmax(1) == y[1536:]).float().mean()
    rights = fabric.all_gather(right).flatten()
    assert torch.equal(rights, rights[:1].expand_as(rights)), "the replicas differ"
    fabric.print(f"accuracy {right:.4f}")
    fabric.save("fabric.ckpt", {"model": model, "optimizer": optimizer, "epochs": EPOCHS})


if __name__ == "__main__":
    main()
