"""docs/models.md says what the code says. Run this file to print its tables anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from benchmarks.parts.papers.model_sizes import FIGURES

from dayfly.models import MODELS, Entry, layer_sizes, on_meta

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def line(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.2f}"


def takes(entry: Entry) -> str:
    shape = "x".join(str(side) for side in entry.sample_shape)
    return shape if entry.sample_type == torch.float32 else f"{shape} {entry.sample_type}"


def models() -> Iterator[str]:
    yield line(
        "name", "layers", "parameters", "MB", "a sample", "scores", "kept, MiB", "largest cut, MiB"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for name, entry in MODELS.items():
        sizes = layer_sizes(on_meta(entry.build), entry.sample(1))
        size_bytes = sum(layer.parameter_bytes for layer in sizes)
        yield line(
            f"`{name}`",
            len(sizes),
            f"{size_bytes // 4:,}",
            f"{size_bytes / 1e6:.2f}",
            takes(entry),
            entry.scores,
            mib(sum(layer.kept_bytes for layer in sizes)),
            mib(max(layer.output_bytes for layer in sizes[:-1])),
        )


def figures() -> Iterator[str]:
    yield line("source", "name", "printed", "ours", "unit", "")
    yield "|---|---|---|---|---|---|"
    for figure in FIGURES:
        ours = figure.ours if figure.reached else f"**{figure.ours}**"
        name = f"`{figure.model}`"
        yield line(figure.where, name, figure.printed, ours, figure.unit, figure.note)


@pytest.mark.slow
def test_the_page_has_the_tables_as_they_are() -> None:
    text = PAGE.read_text()
    for table in (models(), figures()):
        assert "\n".join(table) in text


if __name__ == "__main__":
    print("\n".join(models()), "\n".join(figures()), sep="\n\n")
