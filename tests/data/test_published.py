"""The papers' sets, on small files of the form in which they are published."""

from __future__ import annotations

import bz2
import gzip
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dayfly.data
from dayfly.data import source_of
from dayfly.errors import RequestError
from dayfly.training.arrays import store_arrays
from dayfly.training.sources import ArraySource
from tests.training.stores import new_store

RNG = np.random.default_rng(0)


def worker_gets(arrays: Any, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Training samples by way of a store; there are arrays of validation."""
    with new_store() as store:
        split, _ = store_arrays(arrays, store, seed=0)
        source = ArraySource(store, split, None, seed=0)
        wanted = np.array(indices)
        x, y = source.batch(source.fetch(wanted), wanted, range(len(wanted)), 0)
    assert x is not None
    assert y is not None
    return x, y


def write_idx(path: Path, array: np.ndarray) -> None:
    head = struct.pack(f">BBBB{array.ndim}i", 0, 0, 8, array.ndim, *array.shape)
    (gzip.open if path.suffix == ".gz" else open)(path, "wb").write(head + array.tobytes())


def mnist(root: Path, end: str = ".gz") -> tuple[np.ndarray, np.ndarray]:
    images = RNG.integers(0, 256, (5, 28, 28), np.uint8)
    labels = np.array([3, 1, 4, 1, 5], np.uint8)
    for part, count in (("train", 5), ("t10k", 2)):
        write_idx(root / f"{part}-images-idx3-ubyte{end}", images[:count])
        write_idx(root / f"{part}-labels-idx1-ubyte{end}", labels[:count])
    return images, labels


@pytest.mark.parametrize("end", ["", ".gz"])
def test_mnist(end: str, tmp_path: Path) -> None:
    images, labels = mnist(tmp_path, end)
    arrays = source_of(tmp_path).read().arrays
    assert (len(arrays["x_val"]), arrays["y_val"].tolist()) == (2, [3, 1])
    x, y = worker_gets(arrays, [4, 0])
    assert torch.equal(x, torch.from_numpy(images[[4, 0], None]).float() / 255)
    assert y.tolist() == labels[[4, 0]].tolist()


@pytest.mark.parametrize("harm", ["short", "long", "magic", "cut", "fewer"])
def test_damaged_idx(harm: str, tmp_path: Path) -> None:
    mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    whole = gzip.decompress(path.read_bytes())
    changed = {"short": whole[:-1], "long": whole + b"x", "magic": b"\0\0\x09" + whole[3:]}
    if harm == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    elif harm == "fewer":
        write_idx(path, np.zeros((4, 28, 28), np.uint8))
    else:
        path.write_bytes(gzip.compress(changed[harm]))
    said = {"magic": "is no IDX", "cut": "cannot be read: EOFError", "fewer": "has 4 images"}
    with pytest.raises(RequestError, match=rf"idx3-ubyte\.gz .*{said.get(harm, 'and says 3920')}"):
        source_of(tmp_path).read()


def records(count: int, labels: int) -> np.ndarray:
    rows = RNG.integers(0, 256, (count, labels + 3072), np.uint8)
    rows[:, :labels] %= 10
    return rows


def test_cifar_10_and_100(tmp_path: Path) -> None:
    ten, hundred = tmp_path / "10", tmp_path / "100"
    ten.mkdir()
    hundred.mkdir()
    batches = [records(3, 1) for _ in range(6)]
    for number, rows in enumerate(batches):
        name = f"data_batch_{number + 1}.bin" if number < 5 else "test_batch.bin"
        rows.tofile(ten / name)
    (ten / "batches.meta.txt").write_text("airplane\nautomobile\n\n")
    samples = source_of(ten).read()
    assert samples.classes == ["airplane", "automobile"]
    x, y = worker_gets(samples.arrays, [13, 0])
    rows = np.concatenate(batches[:5])[[13, 0]]
    assert torch.equal(x, torch.from_numpy(rows[:, 1:].reshape(2, 3, 32, 32)).float() / 255)
    assert y.tolist() == rows[:, 0].tolist()

    fine = records(4, 2)
    fine[:, 1] = [99, 0, 50, 7]
    fine.tofile(hundred / "train.bin")
    assert source_of(hundred).read().arrays["y_train"].tolist() == [99, 0, 50, 7]
    fine[2, 1] = 100
    fine.tofile(hundred / "train.bin")
    with pytest.raises(RequestError, match=r"train\.bin, record 2: its label is 100"):
        source_of(hundred).read()
    (hundred / "train.bin").write_bytes(fine.tobytes()[:-1])
    with pytest.raises(RequestError, match=r"train\.bin ends in the middle of a record"):
        source_of(hundred).read()


RCV1 = "-1 3:0.5 40000:0.25\n1 1:1\n\n1 7:2e-1 9:-3 # of a document\n"


@pytest.mark.parametrize("name", ["rcv1_train.binary", "rcv1_train.binary.bz2"])
def test_sparse_rows(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(bz2.compress(RCV1.encode()) if name.endswith("bz2") else RCV1.encode())
    (tmp_path / "v").write_text("1 47236:1\n")
    samples = dayfly.data.libsvm(path, validation=tmp_path / "v").read()
    assert type(source_of(path)) is dayfly.data.libsvm
    assert samples.classes == ["-1", "1"]
    x, y = worker_gets(samples.arrays, [2, 0])
    wanted = torch.zeros(2, 47236)
    wanted[0, 6], wanted[0, 8], wanted[1, 2], wanted[1, 39999] = 0.2, -3, 0.5, 0.25
    assert torch.equal(x, wanted)
    assert y.tolist() == [1, 0]


def test_dense_rows_of_libsvm(tmp_path: Path) -> None:
    (tmp_path / "HIGGS").write_text("1.000e+00 1:0.5 2:-1\n0.000e+00 1:2 2:3\n1 2:1\n")
    arrays = source_of(tmp_path / "HIGGS").read().arrays
    assert arrays["x_train"].tolist() == [[0.5, -1], [2, 3], [0, 1]]
    assert arrays["y_train"].tolist() == [1, 0, 1]
    kept = dayfly.data.libsvm(tmp_path / "HIGGS", regression=True).read().arrays["y_train"]
    assert (kept.dtype, kept.tolist()) == (np.float32, [1, 0, 1])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1 3:x", "line 2: it is no `label index:value ...`"),
        ("1 3:1 2:1", "line 2: indices have to grow from 1"),
        ("1 0:1", "line 2: indices have to grow from 1: .* zero_based=True"),
        ("1 3:inf", "line 2: a value is not finite"),
    ],
)
def test_bad_lines_of_libsvm(line: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "x.svm").write_text(f"1 1:1\n{line}\n")
    with pytest.raises(RequestError, match=rf"x\.svm, {said}"):
        source_of(tmp_path / "x.svm").read()


def test_wikitext(tmp_path: Path) -> None:
    text = " \n = Head = \n \n a b <unk> a b\n c a b . \n"
    (tmp_path / "wiki.train.tokens").write_text(text)
    (tmp_path / "wiki.valid.tokens").write_text(" a z c \n b\n")
    samples = dayfly.data.wikitext(tmp_path, length=3, vocabulary=9).read()
    # a and b stand three times, = twice, and of the others, once each, . and Head come first.
    wanted = ["<pad>", "<unk>", "<begin>", "<end>", "a", "b", "=", ".", "Head"]
    assert list(samples.vocabulary) == wanted
    words = [6, 8, 6, 3, 4, 5, 1, 4, 5, 3, 1, 4, 5, 7, 3]
    arrays = samples.arrays
    assert arrays["x_train"].tolist() == [words[i : i + 3] for i in (0, 3, 6, 9)]
    assert arrays["y_train"].tolist() == [words[i + 1 : i + 4] for i in (0, 3, 6, 9)]
    assert (arrays["x_val"].tolist(), arrays["y_val"].tolist()) == ([[4, 1, 1]], [[1, 1, 3]])
    with pytest.raises(RequestError, match="has 15 words, fewer than a sample needs"):
        dayfly.data.wikitext(tmp_path, length=15).read()


GLUE = {
    "CoLA": "gj04\t1\t\tShe runs.\ngj04\t0\t*\tRuns she.\n",
    "SST-2": 'sentence\tlabel\nShe "runs. \t1\nRuns she.\t0\n',
    "RTE": "index\tsentence1\tsentence2\tlabel\n0\tShe runs.\tShe.\tnot_entailment\n"
    "1\tRuns she.\tRuns.\tentailment\n",
    "MRPC": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tShe runs.\tShe.\n"
    "0\t9\t10\tRuns she.\tRuns.\n",
}


@pytest.mark.parametrize("task", GLUE)
def test_glue(task: str, tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text(GLUE[task])
    (tmp_path / "dev.tsv").write_text(GLUE[task])
    samples = dayfly.data.glue(tmp_path, length=8).read()
    words = [samples.vocabulary[n] for n in samples.arrays["x_train"][0].tolist()]
    first = ["she", '"', "runs", "."] if task == "SST-2" else ["she", "runs", "."]
    second = ["she", ".", "<end>"] if task in ("RTE", "MRPC") else []
    wanted = ["<begin>", *first, "<end>", *second]
    assert words == [*wanted, *["<pad>"] * (8 - len(wanted))][:8]
    assert samples.arrays["y_train"].tolist() == [1, 0]
    assert samples.arrays["y_val"].tolist() == [1, 0]


def test_scores_and_bad_lines_of_glue(tmp_path: Path) -> None:
    head = "index\tsentence1\tsentence2\tscore\n"
    rows = [f"{n}\ta\tb\t{n}.25\n" for n in range(5)]
    (tmp_path / "train.tsv").write_text(head + "".join(rows))
    y = dayfly.data.glue(tmp_path).read().arrays["y_train"]
    assert (y.dtype, y.tolist()) == (np.float32, [0.25, 1.25, 2.25, 3.25, 4.25])
    (tmp_path / "train.tsv").write_text(head + rows[0] + "1\ta\t2.0\n")
    with pytest.raises(RequestError, match=r"train\.tsv, line 3: it has 3 cells"):
        dayfly.data.glue(tmp_path).read()
    (tmp_path / "train.tsv").write_text("a\tb\n1\t2\n")
    with pytest.raises(RequestError, match="which are of no task of GLUE"):
        dayfly.data.glue(tmp_path).read()


def squad(answer: str, start: int) -> str:
    asked = {"id": "q1", "question": "Who?", "answers": [{"text": answer, "answer_start": start}]}
    paragraph = {"context": "In İzmir, Ada Lovelace-King wrote.", "qas": [asked]}
    return json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}], "version": "1.1"})


def test_squad(tmp_path: Path) -> None:
    train = tmp_path / "train-v1.1.json"
    train.write_text(squad("Ada Lovelace", 10))
    samples = dayfly.data.squad(tmp_path, length=20).read()
    words = [samples.vocabulary[n] for n in samples.arrays["x_train"][0].tolist()]
    assert words[:6] == ["<begin>", "who", "?", "<end>", "in", "İzmir".lower()]
    first, last = samples.arrays["y_train"][0].tolist()
    assert words[first : last + 1] == ["ada", "lovelace"]
    with pytest.raises(RequestError, match="no answer is within 6 words: raise length"):
        dayfly.data.squad(tmp_path, length=6).read()
    train.write_text(squad("Ada Lovelace", 11))
    with pytest.raises(RequestError, match="question q1: its answer 'Ada Lovelace' is not at"):
        dayfly.data.squad(tmp_path).read()
    train.write_text('{"data": [{"paragraphs": 7}]}')
    with pytest.raises(RequestError, match="it is not as SQuAD's JSON"):
        dayfly.data.squad(tmp_path).read()
