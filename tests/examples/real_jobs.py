"""Jobs as people bring them, on sets that scikit-learn and Python ship, and the plain loop of each.

tabular        class weights, F1              autoencoder   images to themselves
images         augmentation, average          regression    a scheduler by steps
gpt            token loss with padding        multi_label   three questions at once
gan            two optimizers                 sparse        logistic regression on words

scikit-learn takes a second to import, and is imported where it is needed.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import dayfly
from dayfly.training.order import Epochs
from dayfly.training.randomness import AUGMENT, WEIGHTS, seeded

EPOCHS = 2


class Pairs(torch.utils.data.Dataset[Any]):
    """Rows (x, y); `change` is done to x."""

    def __init__(self, x: Any, y: Any, change: Callable[[Any], Any] | None = None) -> None:
        self.x, self.y = torch.as_tensor(x), torch.as_tensor(y)
        self.change = change or (lambda x: x)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.change(self.x[index]), self.y[index]


def _split(x: Any, y: Any, change: Callable[[Any], Any] | None = None) -> tuple[Pairs, Pairs]:
    """Every fifth row validates; the whole is no multiple of a batch."""
    last = np.arange(len(x)) % 5 == 4
    return Pairs(x[~last], y[~last], change), Pairs(x[last], y[last])


def _scaled(x: Any) -> Any:
    return ((x - x.mean(0)) / (x.std(0) + 1e-6)).astype(np.float32)


def _digits() -> tuple[Any, Any]:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return (x / 16).astype(np.float32)[:600], y[:600]


def _sgd(lr: float, momentum: float = 0.9) -> Any:
    return lambda params: torch.optim.SGD(params, lr=lr, momentum=momentum)


# Tables: malignant cases are fewer, and count more.


def cancer() -> tuple[Pairs, Pairs]:
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    return _split(_scaled(x), y)


def weighted(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs, targets, weight=torch.tensor([1.7, 0.8]))


def f1(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    found = outputs.argmax(1) == 0
    right = int((found & (targets == 0)).sum())
    return 2 * right / max(1, int(found.sum() + (targets == 0).sum()))


def tabular() -> dayfly.Job:
    return dayfly.Job(
        model=lambda: nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 2)),
        data=cancer,
        loss=weighted,
        optimizer=_sgd(0.05),
        metrics={"f1": f1},
        batch_size=32,
        epochs=EPOCHS,
    )


# Images, shifted at random; validation measures averaged weights.


def shifted(x: torch.Tensor) -> torch.Tensor:
    rows, columns = torch.randint(-1, 2, (2,)).tolist()
    return torch.roll(x, (rows, columns), dims=(1, 2))


def pictures() -> tuple[Pairs, Pairs]:
    x, y = _digits()
    return _split(x.reshape(-1, 1, 8, 8), y, shifted)


def images() -> dayfly.Job:
    return dayfly.Job(
        model=lambda: nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)
        ),
        data=pictures,
        loss=F.cross_entropy,
        optimizer=_sgd(0.05),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5),
        ema=0.9,
        batch_size=64,
        epochs=EPOCHS,
    )


# Text: lines of Python's own library, padded; padding is no token.

LINE, PAD = 32, 0


def lines() -> tuple[Pairs, Pairs]:
    source = Path(argparse.__file__).read_text(encoding="utf-8").splitlines()
    text = [line.strip().encode("ascii", "replace")[: LINE + 1] for line in source]
    rows = [list(line) + [PAD] * (LINE + 1 - len(line)) for line in text if len(line) > 4][:400]
    tokens = np.array(rows, dtype=np.int64)
    return _split(tokens[:, :-1], tokens[:, 1:])


class Gpt(nn.Module):
    """A decoder of one layer; scores of the next token, (N, tokens, LINE)."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(128, 32), nn.Embedding(LINE, 32)
        self.layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        hidden = self.token(x) + self.place(torch.arange(length))
        scores: torch.Tensor = self.head(self.layer(hidden, src_mask=mask, is_causal=True))
        return scores.transpose(1, 2)


def token_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs, targets, ignore_index=PAD)


def gpt() -> dayfly.Job:
    return dayfly.Job(
        model=Gpt,
        data=lines,
        loss=token_loss,
        optimizer=_sgd(0.1),
        clip_norm=1.0,
        batch_size=32,
        epochs=EPOCHS,
    )


# A GAN; its noise is made of the samples, so that it is the same whoever has them.


class Gan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.g = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64), nn.Sigmoid())
        self.d = nn.Sequential(nn.Linear(64, 32), nn.LeakyReLU(), nn.Linear(32, 1))

    def drawn(self, x: torch.Tensor) -> torch.Tensor:
        images: torch.Tensor = self.g((100 * x[:, 18:26]).sin())
        return images


def _judged(model: Any, x: torch.Tensor, real: float) -> torch.Tensor:
    scores = model.d(x)
    return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, real))


def step_d(model: Any, batch: Any) -> torch.Tensor:
    x, _ = batch
    return _judged(model, x, 1.0) + _judged(model, model.drawn(x).detach(), 0.0)


def step_g(model: Any, batch: Any) -> torch.Tensor:
    return _judged(model, model.drawn(batch[0]), 1.0)


def gan() -> dayfly.Job:
    return dayfly.Job(
        model=Gan,
        data=lambda: _split(*_digits()),
        step={"d": step_d, "g": step_g},
        optimizer={
            "d": lambda model: torch.optim.SGD(model.d.parameters(), lr=0.05),
            "g": lambda model: torch.optim.SGD(model.g.parameters(), lr=0.05, momentum=0.5),
        },
        clip_norm={"d": 0.5},
        batch_size=64,
        epochs=EPOCHS,
    )


def autoencoder() -> dayfly.Job:
    return dayfly.Job(
        model=lambda: nn.Sequential(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 64), nn.Sigmoid()),
        data=lambda: _split(_digits()[0], _digits()[0]),
        loss=F.mse_loss,
        optimizer=_sgd(1.0),
        batch_size=64,
        epochs=EPOCHS,
    )


def diabetes() -> tuple[Pairs, Pairs]:
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True)
    return _split(_scaled(x), _scaled(y)[:, None])


def r2(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    return float(1 - ((outputs - targets) ** 2).sum() / ((targets - targets.mean()) ** 2).sum())


def regression() -> dayfly.Job:
    return dayfly.Job(
        model=lambda: nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1)),
        data=diabetes,
        loss=F.smooth_l1_loss,
        optimizer=lambda params: torch.optim.AdamW(params, lr=0.01),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(
            optimizer, 0.02, total_steps=EPOCHS * 12 + 1
        ),
        scheduler_every="step",
        metrics={"r2": r2},
        batch_size=32,
        epochs=EPOCHS,
    )


def questions() -> tuple[Pairs, Pairs]:
    """Is the digit even, has it a hole, is it above 4?"""
    x, y = _digits()
    answers = np.stack([y % 2 == 0, np.isin(y, [0, 6, 8, 9]), y > 4], axis=1)
    return _split(x, answers.astype(np.float32))


def all_right(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    return float(((outputs > 0) == (targets > 0.5)).all(1).float().mean())


def multi_label() -> dayfly.Job:
    return dayfly.Job(
        model=lambda: nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3)),
        data=questions,
        loss=F.binary_cross_entropy_with_logits,
        optimizer=_sgd(0.2),
        metrics={"all_right": all_right},
        batch_size=64,
        epochs=EPOCHS,
    )


def words() -> tuple[Pairs, Pairs]:
    """Lines of two modules, as counts of hashed words, of which most are 0."""
    from sklearn.feature_extraction.text import HashingVectorizer

    texts = [Path(module.__file__ or "").read_text(encoding="utf-8") for module in (argparse, re)]
    both = [[line for line in text.splitlines() if len(line.split()) > 2][:300] for text in texts]
    x = HashingVectorizer(n_features=2**10, norm=None, alternate_sign=False).transform(
        [*both[0], *both[1]]
    )
    y = np.repeat([0.0, 1.0], [len(one) for one in both]).astype(np.float32)
    order = np.random.default_rng(3).permutation(len(y))
    return _split(x.toarray().astype(np.float32)[order], y[order, None])


def sparse() -> dayfly.Job:
    return dayfly.Job(
        model=lambda: nn.Linear(2**10, 1),
        data=words,
        loss=F.binary_cross_entropy_with_logits,
        optimizer=lambda params: torch.optim.SGD(params, lr=0.1, weight_decay=1e-4),
        batch_size=32,
        epochs=EPOCHS,
    )


JOBS = {
    job.__name__: job
    for job in (tabular, images, gpt, gan, autoencoder, regression, multi_label, sparse)
}


# What somebody would write without dayfly, in one process.


def plain_loop(job: dayfly.Job) -> tuple[nn.Module, list[dict[str, float]]]:
    """Trains a job's parts by a plain loop over the same samples; returns model and history."""
    parts: Any = job
    with seeded(WEIGHTS, job.seed):
        model = parts.model()
    train, validation = parts.data()
    steps = job.step if isinstance(job.step, dict) else {"": parts.step or _usual_step(parts.loss)}
    if isinstance(job.step, dict):
        optimizers = {name: parts.optimizer[name](model) for name in steps}
    else:
        optimizers = {"": parts.optimizer(list(model.parameters()))}
    norms = job.clip_norm if isinstance(job.clip_norm, dict) else {"": job.clip_norm}
    scheduler = None if job.scheduler is None else parts.scheduler(optimizers[""])
    average = {name: p.detach().clone() for name, p in model.named_parameters()}
    epochs, history, losses = Epochs(len(train), job.batch_size, job.seed), [], []
    for step in range(epochs.steps * job.epochs):
        batch, size = _batch(train, epochs.indices(step, 0, 1), epochs.epoch(step))
        total = 0.0
        for name, its in steps.items():
            loss = its(model, batch)
            model.zero_grad()
            loss.backward()
            own = [p for group in optimizers[name].param_groups for p in group["params"]]
            if norms.get(name) is not None:
                nn.utils.clip_grad_norm_(own, norms[name])
            optimizers[name].step()
            total += float(loss.detach())
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                average[name].lerp_(parameter, 1 - (job.ema or 0.0))
        losses.append((total, size))
        if scheduler is not None and job.scheduler_every == "step":
            scheduler.step()
        if epochs.ends_epoch(step):
            history.append(
                {"train_loss": sum(x * n for x, n in losses) / sum(n for _, n in losses)}
                | _validated(job, model, steps, validation, average)
            )
            losses = []
            if scheduler is not None and job.scheduler_every == "epoch":
                scheduler.step()
    return model, history


def _usual_step(loss: Any) -> Any:
    return lambda model, batch: loss(model(batch[0]), batch[1])


def _batch(dataset: Any, indices: Any, epoch: int) -> tuple[Any, int]:
    def rows() -> Iterator[Any]:
        for index in np.asarray(indices).tolist():
            with seeded(AUGMENT, 0, epoch, index):
                yield dataset[index]

    x, y = zip(*rows(), strict=True)
    return (torch.stack(x), torch.stack(y)), len(x)


def _validated(
    job: dayfly.Job, model: nn.Module, steps: Any, validation: Pairs, average: Any
) -> dict[str, float]:
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    if job.ema is not None:
        model.load_state_dict(average, strict=False)
    whole = validation.x, validation.y
    model.eval()
    with torch.no_grad():
        found = {"val_loss": sum(float(its(model, whole)) for its in steps.values())}
        for name, metric in job.metrics.items():
            found[name] = float(metric(model(whole[0]), whole[1]))
    model.load_state_dict(weights, strict=False)
    model.train()
    return found
