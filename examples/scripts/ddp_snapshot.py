"""Data parallel training with a snapshot, in the style of PyTorch's tutorials for torchrun.

torchrun --standalone --nproc-per-node 4 examples/scripts/ddp_snapshot.py 20 --save-every 5
dayfly run --workers 4 examples/scripts/ddp_snapshot.py 20 --save-every 5

It knows nothing of dayfly. Started again where it left a snapshot, it goes on from there.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Waves(Dataset):
    """Points of a sum of sines in `dimensions`, always the same ones."""

    def __init__(self, size, dimensions=20):
        generator = torch.Generator().manual_seed(7)
        self.x = torch.rand(size, dimensions, generator=generator)
        self.y = torch.sin(6 * self.x).sum(1, keepdim=True)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Trainer:
    """Trains a model from its snapshot, if there is one, and saves it every few epochs."""

    def __init__(self, model, dataset, optimizer, device, batch_size, save_every, snapshot):
        self.rank = dist.get_rank()
        self.device = device
        self.save_every = save_every
        self.snapshot = snapshot
        self.optimizer = optimizer
        self.epochs_run = 0
        self.sampler = DistributedSampler(dataset)
        self.loader = DataLoader(
            dataset,
            batch_size=batch_size,
            sampler=self.sampler,
            pin_memory=device.type == "cuda",
        )
        if os.path.exists(snapshot):
            self.load(model)
        self.model = DDP(model, device_ids=[device.index] if device.type == "cuda" else None)

    def load(self, model):
        state = torch.load(self.snapshot, map_location=self.device)
        model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epochs_run = state["epochs_run"]
        print(f"[{self.rank}] goes on after epoch {self.epochs_run}", flush=True)

    def save(self):
        state = {
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epochs_run": self.epochs_run,
        }
        torch.save(state, self.snapshot + ".new")
        os.replace(self.snapshot + ".new", self.snapshot)

    def run_batch(self, x, y):
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def run_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        losses = [self.run_batch(x.to(self.device), y.to(self.device)) for x, y in self.loader]
        mean = torch.stack(losses).mean()
        dist.all_reduce(mean, op=dist.ReduceOp.SUM)
        return mean.item() / dist.get_world_size()

    def train(self, epochs):
        for epoch in range(self.epochs_run, epochs):
            loss = self.run_epoch(epoch)
            self.epochs_run = epoch + 1
            if self.rank == 0:
                print(f"epoch {epoch}: loss {loss:.5f}", flush=True)
                if self.epochs_run % self.save_every == 0 or self.epochs_run == epochs:
                    self.save()


def main():
    parser = argparse.ArgumentParser(description="Trains a small network on many devices.")
    parser.add_argument("epochs", type=int, help="passes over the data, over all starts")
    parser.add_argument("--save-every", type=int, default=5, help="epochs between two snapshots")
    parser.add_argument("--batch-size", type=int, default=32, help="samples a device and step")
    parser.add_argument("--snapshot", default="snapshot.pt", help="where it goes on from")
    arguments = parser.parse_args()

    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
        dist.init_process_group(backend="nccl")
    else:
        device = torch.device("cpu")
        dist.init_process_group(backend="gloo")

    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(20, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1)
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    trainer = Trainer(
        model,
        Waves(2048),
        optimizer,
        device,
        arguments.batch_size,
        arguments.save_every,
        arguments.snapshot,
    )
    trainer.train(arguments.epochs)
    dist.barrier()  # lets gloo's threads come to their end before the interpreter does
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
