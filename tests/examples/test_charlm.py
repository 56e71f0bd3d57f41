"""The text example: what it measures itself against, its data, its model, and that it learns."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.nn import functional as F

import dayfly

EXAMPLE = Path(__file__).parents[2] / "examples" / "charlm.py"


@pytest.fixture
def charlm() -> Iterator[ModuleType]:
    """The example as a module of its own, whose constants a test may change."""
    spec = importlib.util.spec_from_file_location("charlm", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["charlm"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["charlm"]


def test_p2p_have_numbers_and_other_bytes_are_the_last(charlm: ModuleType) -> None:
    assert charlm.encoded(b"\n ~\t").tolist() == [0, 1, 95, 96]
    assert charlm.encoded("é".encode()).tolist() == [96, 96]
    assert {charlm.ALPHABET[number] for number in charlm.encoded(b"def")} == {*"def"}


def test_baselines_of_a_text_that_can_be_counted_by_hand(charlm: ModuleType) -> None:
    """aabab: its letters after the first are a, b, a, b; its pairs aa, ab, ba, ab."""
    unigram, bigram = charlm.baselines(charlm.encoded(b"aabab"))
    assert unigram == pytest.approx(math.log(2))
    # After a: a once, b twice. After b: always a.
    assert bigram == pytest.approx((math.log(3) + 2 * math.log(3 / 2)) / 4)


def test_no_model_of_pairs_is_better_than_the_baseline(charlm: ModuleType) -> None:
    """The text's own counts are as good; the same counts, changed a little, are worse."""
    text = charlm.encoded(b"def f(x):\n    return x\n" * 3)
    before, after = text[:-1].long(), text[1:].long()
    counts = torch.zeros(97, 97).index_put((before, after), torch.tensor(1.0), accumulate=True)

    def loss(changed: float) -> float:
        return F.cross_entropy((counts + changed).log()[before], after).item()

    bigram = charlm.baselines(text)[1]
    assert loss(0.0) == pytest.approx(bigram)
    assert bigram < loss(0.01) < loss(0.5)


def test_windows_and_what_follows_each_letter(charlm: ModuleType) -> None:
    text = torch.arange(2 * charlm.WINDOW + 1, dtype=torch.uint8)
    for dataset, windows in ((charlm.Text(text), 2), (charlm.Text(text, 7), 7)):
        assert len(dataset) == windows
        for index in range(windows):
            x, y = dataset[index]
            assert x.shape == y.shape == (charlm.WINDOW,)
            assert x.dtype == y.dtype == torch.int64
            assert torch.equal(y, x + 1)
    one_after_another = torch.cat([charlm.Text(text)[index][1] for index in range(2)])
    assert torch.equal(one_after_another, text[1:].long()), "each letter is to be guessed once"


def test_no_text_of_validation_is_in_training(charlm: ModuleType) -> None:
    train, validation = charlm.standard_library()
    assert len(train) > 100
    assert not set(train) & set(validation)
    assert (train, validation) == charlm.standard_library()
    texts = charlm.data()
    assert [len(part.text) for part in texts] == [
        charlm.TRAIN_CHARACTERS,
        charlm.VALIDATION_CHARACTERS,
    ]
    assert torch.equal(texts[1].text, charlm.beginning(validation, charlm.VALIDATION_CHARACTERS))


def test_a_library_without_enough_source_is_refused(charlm: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match="has 6 characters of Python, where 100 are needed"):
        charlm.beginning([tmp_path / "tiny.py"], 100)


@pytest.mark.long
def test_a_letter_changes_no_guess_before_it(charlm: ModuleType) -> None:
    torch.manual_seed(0)
    model = charlm.CharLM().eval()
    assert sum(p.numel() for p in model.parameters()) == 421_504
    letters = torch.randint(97, (2, charlm.WINDOW))
    changed = letters.clone()
    changed[:, 40] = (changed[:, 40] + 1) % 97
    with torch.no_grad():
        before, after = model(letters), model(changed)
    assert before.shape == (2, 97, charlm.WINDOW)
    torch.testing.assert_close(before[..., :40], after[..., :40], rtol=0, atol=0)
    assert not (before[..., 40:] == after[..., 40:]).all(1).any(), "all from there on see it"


def test_the_loss_of_a_letter_has_no_gradient_from_later_ones(charlm: ModuleType) -> None:
    torch.manual_seed(0)
    model = charlm.CharLM()
    model(torch.arange(50)[None])[0, :, 20].sum().backward()
    places = model.places.grad.abs().sum(1)
    assert (places[:21] > 0).all()
    assert (places[21:] == 0).all()


def test_only_matrices_decay_and_every_parameter_is_trained(charlm: ModuleType) -> None:
    model = charlm.CharLM()
    decaying, plain = charlm.adamw(model.parameters()).param_groups
    assert {p.ndim for p in decaying["params"]} == {2}
    assert decaying["weight_decay"] > 0
    assert {p.ndim for p in plain["params"]} == {1}
    assert plain["weight_decay"] == 0
    assert len(decaying["params"]) + len(plain["params"]) == len(list(model.parameters()))


def test_the_rate_warms_up_and_falls_to_zero(charlm: ModuleType) -> None:
    optimizer = charlm.adamw(charlm.CharLM().parameters())
    scheduler = charlm.warm_up_and_cosine(optimizer)
    rates = []
    for _ in range(charlm.STEPS):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    top = charlm.WARM_UP_STEPS - 1
    assert rates[0] == pytest.approx(rates[top] / charlm.WARM_UP_STEPS)
    assert rates[top] == max(rates) == 4e-3
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert scheduler.get_last_lr()[0] == pytest.approx(0, abs=1e-12)


@pytest.mark.slow  # 15 s of a processor; the tests above have each part of it, none the whole job
def test_two_functions_learn_more_than_letter_frequencies(
    charlm: ModuleType, tmp_path: Path
) -> None:
    """Sixty steps of the thousand; the whole takes a minute and a half."""
    steps = 60
    charlm.STEPS, charlm.WARM_UP_STEPS, charlm.WINDOWS = steps, 10, steps * charlm.BATCH
    charlm.VALIDATION_CHARACTERS = 20_000
    job = dataclasses.replace(charlm.job, epochs=1)

    run = dayfly.train(job, workers=2, run_dir=tmp_path / "run", progress=False)

    unigram, _ = charlm.baselines(charlm.data()[1].text)
    (epoch,) = run.history
    assert epoch["val_loss"] < unigram - 0.2
    assert epoch["bits_per_character"] == pytest.approx(epoch["val_loss"] / math.log(2))
    losses = json.loads((run.directory / "history.json").read_text())["step_loss"]
    assert len(losses) == steps
    assert losses[0] == pytest.approx(math.log(97), abs=0.5), "it began by knowing nothing"
    text = charlm.written(run.model(), "def ", 20)
    assert text.startswith("def ")
    assert len(text) == 24
