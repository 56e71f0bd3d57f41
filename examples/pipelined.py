"""The small GPT of charlm.py as a list of layers, so that it can be cut into stages.

dayfly train examples/pipelined.py --cut 2,4 --micro-batches 4      three functions
dayfly train examples/pipelined.py --cut 3 --replicas 2             two stages, two functions each

Shapes: B windows of text, T characters, D width, V letters of the alphabet.
"""

import torch
from charlm import ALPHABET, WIDTH, WINDOW, Block, Text, beginning, standard_library
from torch import nn

import dayfly

BLOCKS = 4
BATCH, STEPS = 8, 40


class LettersAndPlaces(nn.Module):
    """Letters (B, T) -> x_BTD."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(ALPHABET), WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(WINDOW, WIDTH))

    def forward(self, letters_BT: torch.Tensor) -> torch.Tensor:
        return self.letters(letters_BT) + self.places[: letters_BT.shape[1]]


class NextLetter(nn.Module):
    """x_BTD -> scores (B, V, T) of the letter that follows each.

    charlm.py shares this matrix with the first layer; the first and the last stage cannot.
    """

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.scores = nn.Linear(WIDTH, len(ALPHABET), bias=False)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        return self.scores(self.norm(x_BTD)).transpose(1, 2)


class LayeredGPT(nn.Module):
    """Letters (B, T) -> scores (B, V, T), by layers 0 to BLOCKS + 1."""

    def __init__(self) -> None:
        super().__init__()
        self.begin = LettersAndPlaces()
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.end = NextLetter()

    def layers(self) -> list[nn.Module]:
        """What --cut counts: each takes what the one before it returns."""
        return [self.begin, *self.blocks, self.end]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers():
            x = layer(x)
        return x


def data() -> tuple[Text, Text]:
    train, validation = standard_library()
    return Text(beginning(train, 300_000), BATCH * STEPS), Text(beginning(validation, 10_000))


job = dayfly.Job(
    model=LayeredGPT,
    data=data,
    loss=nn.functional.cross_entropy,
    optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=2e-3),
    clip_norm=1.0,
    batch_size=BATCH,
    epochs=1,
)
