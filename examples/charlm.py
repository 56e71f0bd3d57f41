"""A small GPT that learns to write Python, letter by letter, from Python's own standard library.

dayfly train examples/charlm.py --workers 4     about two minutes on two cores
python examples/charlm.py                       what its validation loss is to be compared with
python examples/charlm.py runs/charlm-...       text by the trained model

Shapes: B windows of text, T characters, D width, H heads, V letters of the alphabet.
"""

import math
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from torch import nn
from torch.nn import functional as F

import dayfly

#: What text is made of, by number; any other byte of it counts as the last of these.
ALPHABET = "\n" + "".join(map(chr, range(32, 127))) + "\N{REPLACEMENT CHARACTER}"
#: One of so many files is for validation: no text of it is seen in training.
HELD_OUT = 10
TRAIN_CHARACTERS, VALIDATION_CHARACTERS = 3_000_000, 100_000
#: T, and the training windows an epoch.
WINDOW, WINDOWS = 96, 8000
WIDTH, LAYERS, HEADS = 128, 2, 4
BATCH, EPOCHS = 32, 4
STEPS, WARM_UP_STEPS = EPOCHS * WINDOWS // BATCH, 50


def encoded(text: bytes) -> torch.Tensor:
    """UTF-8 text (n bytes) -> its letters' numbers (n,), uint8."""
    numbers = np.full(256, len(ALPHABET) - 1, dtype=np.uint8)
    numbers[[ord(letter) for letter in ALPHABET[:-1]]] = range(len(ALPHABET) - 1)
    return torch.from_numpy(numbers[np.frombuffer(text, dtype=np.uint8)])


def standard_library() -> tuple[list[Path], list[Path]]:
    """Files for training and for validation: the library's own modules, without its packages."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    held_out = files[::HELD_OUT]
    return sorted(set(files) - set(held_out)), held_out


def beginning(files: Iterable[Path], characters: int) -> torch.Tensor:
    """The first characters of all files' text, encoded (characters,)."""
    parts: list[torch.Tensor] = []
    for file in files:
        parts.append(encoded(file.read_bytes()))
        if sum(map(len, parts)) >= characters:
            return torch.cat(parts)[:characters]
    raise ValueError(
        f"{sysconfig.get_path('stdlib')} has {sum(map(len, parts))} characters of Python, "
        f"where {characters} are needed: use a Python that has its library's source"
    )


class Text(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Windows x (T,) of a text, and y (T,): the letter that follows each of x's.

    windows: so many, each from anywhere. None: one after another, for validation.
    """

    def __init__(self, text: torch.Tensor, windows: int | None = None) -> None:
        self.text = text
        self.anywhere = windows is not None
        self.windows = windows or (len(text) - 1) // WINDOW

    def __len__(self) -> int:
        return self.windows

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        # dayfly seeds the generator for each sample and epoch: another window in every epoch, and
        # the same ones again for a worker that starts again.
        at = index * WINDOW
        if self.anywhere:
            at = int(torch.randint(len(self.text) - WINDOW, ()))
        window = self.text[at : at + WINDOW + 1].long()
        return window[:-1], window[1:]


def data() -> tuple[Text, Text]:
    train, validation = standard_library()
    return (
        Text(beginning(train, TRAIN_CHARACTERS), WINDOWS),
        Text(beginning(validation, VALIDATION_CHARACTERS)),
    )


def baselines(text: torch.Tensor) -> tuple[float, float]:
    """Nats a letter of the best guess from letter frequencies, and from pairs, for this text (n,).

    They are the text's own: no guess that knows only the letter before has a smaller loss here,
    whatever it was fitted to.
    """
    letters = len(ALPHABET)
    before, after = text[:-1].long(), text[1:].long()
    pairs = torch.bincount(before * letters + after, minlength=letters**2)
    together = (pairs / pairs.sum()).double().view(letters, letters)
    alone = together.sum(0)
    given = together / together.sum(1, keepdim=True)
    return -alone.xlogy(alone).sum().item(), -torch.xlogy(together, given).nansum().item()


class Block(nn.Module):
    """Attention to what came before, then a perceptron; each adds to what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2)  # (B, H, T, D / H)
            for part in self.qkv(self.norm_1(x_BTD)).chunk(3, dim=-1)
        )
        heard = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x_BTD = x_BTD + self.out(heard.transpose(1, 2).flatten(2))
        return x_BTD + self.down(F.gelu(self.up(self.norm_2(x_BTD))))


class CharLM(nn.Module):
    """Letters (B, T) -> scores (B, V, T) of the letter that follows each; 421,504 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Parameter(0.02 * torch.randn(len(ALPHABET), WIDTH))
        self.places = nn.Parameter(0.02 * torch.randn(WINDOW, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, letters_BT: torch.Tensor) -> torch.Tensor:
        x_BTD = F.embedding(letters_BT, self.letters) + self.places[: letters_BT.shape[1]]
        x_BTD = self.norm(self.blocks(x_BTD))
        # Reading and writing letters share their weights.
        return (x_BTD @ self.letters.T).transpose(1, 2)


def adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Only matrices decay: not the biases, nor the gains of norms."""
    every = list(parameters)
    groups = [
        {"params": [p for p in every if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for p in every if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=4e-3, betas=(0.9, 0.99))


def warm_up_and_cosine(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    """The rate rises evenly for the first steps, and falls to zero in half a cosine."""

    def share(step: int) -> float:
        if step < WARM_UP_STEPS:
            return (step + 1) / WARM_UP_STEPS
        done = (step - WARM_UP_STEPS) / (STEPS - WARM_UP_STEPS)
        return 0.5 + 0.5 * math.cos(math.pi * min(done, 1.0))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, share)


def bits_per_character(scores_BVT: torch.Tensor, letters_BT: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(scores_BVT, letters_BT) / math.log(2)


job = dayfly.Job(
    model=CharLM,
    data=data,
    loss=F.cross_entropy,
    optimizer=adamw,
    scheduler=warm_up_and_cosine,
    scheduler_every="step",
    clip_norm=1.0,
    batch_size=BATCH,
    epochs=EPOCHS,
    metrics={"bits_per_character": bits_per_character},
)


@torch.no_grad()
def written(model: nn.Module, begin: str, letters: int, temperature: float = 0.7) -> str:
    """`begin`, continued by so many letters that the model draws one after another."""
    text = encoded(begin.encode()).long()[None]
    for _ in range(letters):
        scores = model(text[:, -WINDOW:])[0, :, -1]
        drawn = torch.multinomial((scores / temperature).softmax(0), 1)
        text = torch.cat([text, drawn[None]], dim=1)
    return "".join(ALPHABET[number] for number in text[0].tolist())


def main() -> None:
    if len(sys.argv) > 1:
        model = CharLM().eval()
        safetensors.torch.load_model(model, Path(sys.argv[1]) / "weights.safetensors")
        print(written(model, "def ", 800))
        return
    unigram, bigram = baselines(data()[1].text)
    print(f"letter frequencies  {unigram:.3f} nats a letter, {unigram / math.log(2):.3f} bits")
    print(f"pairs of letters    {bigram:.3f} nats a letter, {bigram / math.log(2):.3f} bits")


if __name__ == "__main__":
    main()
