"""Handwritten digits with the Trainer of Lightning, which goes on from its last checkpoint.

torchrun --standalone --nproc-per-node 4 examples/scripts/with_lightning.py
dayfly run --workers 4 examples/scripts/with_lightning.py

It knows nothing of dayfly. Needs pytorch-lightning and scikit-learn.
"""

import os

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH = 6, 32


class Digits(pl.LightningModule):
    """A small network; says its mean loss and its accuracy after each epoch."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        right = (self.net(x).argmax(1) == y).float().mean()
        self.log("accuracy", right, sync_dist=True)

    def on_train_epoch_end(self):
        loss, accuracy = (self.trainer.callback_metrics[name] for name in ("loss", "accuracy"))
        self.print(f"epoch {self.current_epoch}: loss {loss:.5f}, accuracy {accuracy:.4f}")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=5e-3)


def main():
    pl.seed_everything(3)
    bunch = load_digits()
    x = torch.tensor(bunch.data, dtype=torch.float32) / 16
    y = torch.tensor(bunch.target)
    train = DataLoader(TensorDataset(x[:1536], y[:1536]), batch_size=BATCH, shuffle=True)
    held_out = DataLoader(TensorDataset(x[1536:], y[1536:]), batch_size=BATCH)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("WORLD_SIZE", 1)),
        strategy="ddp",
        max_epochs=EPOCHS,
        callbacks=[ModelCheckpoint("lightning", save_last=True, save_on_train_epoch_end=True)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    last = "lightning/last.ckpt"
    trainer.fit(Digits(), train, held_out, ckpt_path=last if os.path.exists(last) else None)


if __name__ == "__main__":
    main()
