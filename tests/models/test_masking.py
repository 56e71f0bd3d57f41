"""Masked words: what is hidden, that it follows from the sample, and that BERT learns them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import dayfly
from dayfly.models import MaskWords, bert, masked_words_step
from dayfly.models.transformers import Words, start_small
from dayfly.training.randomness import AUGMENT, seed_generators
from tests.runs import small


def test_eight_in_ten_of_the_chosen_are_the_mask_one_another_word_one_itself() -> None:
    torch.manual_seed(0)
    words = torch.randint(0, 1000, (100_000,))
    seen, targets = MaskWords(1000)(words)
    chosen = targets != -100
    assert torch.equal(targets[chosen], words[chosen])
    assert torch.equal(seen[~chosen], words[~chosen])
    ordinary = words >= 4
    assert not chosen[~ordinary].any()
    assert chosen[ordinary].float().mean().item() == pytest.approx(0.15, abs=0.005)
    masked, kept = (seen == 1000)[chosen], (seen == words)[chosen]
    assert masked.float().mean().item() == pytest.approx(0.8, abs=0.01)
    assert kept.float().mean().item() == pytest.approx(0.1, abs=0.01)
    others = seen[chosen][~masked & ~kept]
    assert 4 <= others.min() < others.max() < 1000


def test_it_follows_from_seed_epoch_and_sample() -> None:
    words, mask = torch.arange(40), MaskWords(50)

    def drawn(*key: int) -> torch.Tensor:
        seed_generators(AUGMENT, *key)
        return mask(words)

    assert torch.equal(drawn(1, 2, 3), drawn(1, 2, 3))
    assert not torch.equal(drawn(1, 2, 3), drawn(1, 2, 4))
    for wrong in ({"share": 0}, {"special": 50}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            MaskWords(50, **wrong)  # type: ignore[arg-type]


#: A rule that neighbours tell: each word follows from the one before.
WORDS = [f"w{n}" for n in range(12)]


def write_wikitext(directory: Path) -> Path:
    for part, lines in (("train", 160), ("valid", 30)):
        rows = (" ".join(WORDS[(n + at) % 12] for at in range(11)) for n in range(lines))
        (directory / f"wiki.{part}.tokens").write_text("".join(f" {row} \n" for row in rows))
    return directory


def model() -> torch.nn.Module:
    built = bert(
        "words",
        layers=1,
        width=32,
        heads=4,
        vocabulary=17,  # 4 special ones, 12 words, the mask
        positions=12,
        dropout=0.0,
        end=None,
    )
    start_small(built, 0.1)  # so small a one learns nothing for long from BERT's own
    return built


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.005)


def job(data: Path, **changes: Any) -> dayfly.Job:
    given: dict[str, Any] = {
        "model": model,
        "data": dayfly.data.wikitext(data, length=12),
        "step": masked_words_step,
        "optimizer": adam,
        "batch_size": 16,
        "epochs": 12,
        "transform": MaskWords(16),
        "eval_transform": MaskWords(16),
        **changes,
    }
    return dayfly.Job(**given)


@pytest.mark.slow  # it trains twice; what is masked is above
@pytest.mark.long
def test_a_small_bert_finds_words_and_the_workers_make_no_difference(tmp_path: Path) -> None:
    asked = job(write_wikitext(tmp_path))
    tied = model()
    last = tied[-1]  # type: ignore[index]
    assert isinstance(last, Words)
    assert last.scores.weight is tied[0].words.weight  # type: ignore[index, union-attr]
    runs = [
        dayfly.train(asked, workers=workers, run_dir=tmp_path / str(workers), progress=False)
        for workers in (1, 2)
    ]
    histories = [small.history(run)["epochs"] for run in runs]
    for one, two in zip(*histories, strict=True):
        assert two["train_loss"] == pytest.approx(one["train_loss"], rel=1e-2)
        assert two["val_found"] == pytest.approx(one["val_found"], abs=0.1)
    first, *_, last_epoch = histories[1]
    assert last_epoch["val_loss"] < first["val_loss"] - 0.25
    assert last_epoch["val_found"] > 0.2, "one of twelve would be found by chance"
    assert last_epoch["val_accuracy"] is None
