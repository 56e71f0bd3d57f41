"""CSV and Parquet: the same samples of the same table; refusals say where, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dayfly.data
from dayfly.data import source_of
from dayfly.errors import RequestError

ROWS = "size,color,kind,weight\n1,red,b,0.5\n2,blue,a,1.5\n3,red,b,2.5\n"


def table(tmp_path: Path, text: str = ROWS, name: str = "t.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def arrays(path: Path, **options: Any) -> Any:
    return dayfly.data.csv(path, **options).read().arrays


def test_columns_targets_and_orders(tmp_path: Path) -> None:
    found = dayfly.data.csv(table(tmp_path), target="kind", categories=["color"]).read()
    assert found.arrays["x_train"].tolist() == [[1, 1, 0.5], [2, 0, 1.5], [3, 1, 2.5]]
    assert found.arrays["x_train"].dtype == np.float32
    assert (found.arrays["y_train"].tolist(), list(found.classes)) == ([1, 0, 1], ["a", "b"])
    assert [(one.name, one.role) for one in found.columns] == [
        ("size", "x"),
        ("color", "x"),
        ("kind", "y"),
        ("weight", "x"),
    ]


def test_orders_and_columns_as_they_are_given(tmp_path: Path) -> None:
    found = arrays(
        table(tmp_path),
        target="kind",
        classes=["b", "a"],
        columns=["weight", "color"],
        categories={"color": ["red", "blue"]},
    )
    assert found["x_train"].tolist() == [[0.5, 0], [1.5, 1], [2.5, 0]]
    assert found["y_train"].tolist() == [0, 1, 0]


def test_kinds_of_targets(tmp_path: Path) -> None:
    path = table(tmp_path)
    whole = arrays(path, target="size", columns=["weight"])["y_train"]
    assert (whole.dtype, whole.tolist()) == (np.int64, [1, 2, 3])
    real = arrays(path, target="weight", columns=["size"])["y_train"]
    assert (real.dtype, real.shape) == (np.float32, (3,))
    two = arrays(path, target=["weight", "size"], columns=["color"], categories=["color"])
    assert two["y_train"].tolist() == [[0.5, 1], [1.5, 2], [2.5, 3]]


def test_missing_values(tmp_path: Path) -> None:
    path = table(tmp_path, "a,b,label\n1,,0\nNA,2,1\n3,4,1\n")
    assert arrays(path, missing=-1)["x_train"].tolist() == [[1, -1], [-1, 2], [3, 4]]
    dropped = arrays(path, missing="drop")
    assert (dropped["x_train"].tolist(), dropped["y_train"].tolist()) == ([[3, 4]], [1])


def test_validation_has_the_numbers_of_training(tmp_path: Path) -> None:
    other = table(tmp_path, "kind,weight\nb,7\nb,8\n", "v.csv")
    found = arrays(table(tmp_path), target="kind", columns=["weight"], validation=other)
    assert (found["y_val"].tolist(), found["x_val"].tolist()) == ([1, 1], [[7], [8]])
    table(tmp_path, "kind,weight\nb,7\nc,8\n", "v.csv")
    with pytest.raises(RequestError, match=r"v\.csv, line 3: column 'kind' has 'c', which is none"):
        arrays(table(tmp_path), target="kind", columns=["weight"], validation=other)


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (ROWS, {}, r"t\.csv: no column's name says to be the target: .* target='weight'\)"),
        ("a,y,label\n1,2,3\n", {}, r"columns 'y', 'label' may be the target: name it"),
        (ROWS, {"target": "kind"}, r"line 2: column 'color' holds text \('red'\): leave it out"),
        ("a,y\n1,0\n2,1\nx,1\n", {}, r"line 4: column 'a' holds text \('x'\)"),
        ("a,y\n1,0\n,1\n", {}, r"line 3: column 'a' has no value \(1 of 2 rows have none\)"),
        ("a,y\n1,0\n2\n", {}, r"line 3: it has 1 cells, and the first line 2"),
        ("a,y\n1,0\ninf,1\n", {}, r"line 3: column 'a' is not finite"),
        ('a,y\n"1\n2",0\n3,0\nx,0\n', {}, r"line 3: column 'a' holds text \('1\\n2'\)"),
        ("1,0\n2,1\n", {}, r"line 1: the first line has numbers, no names: give header=False"),
        ("a,a,y\n1,2,3\n", {}, r"line 1: two columns are called 'a'"),
        ("a,y\n", {}, "it has no rows"),
        ("", {}, "it is empty"),
        ('a,y\n"1,0\n', {}, "check its quotes"),
        (ROWS, {"target": "gone"}, r"there is no column 'gone': it has 'size', 'color'"),
        (ROWS, {"target": "kind", "columns": ["kind"]}, "column 'kind' is both target and x"),
        (ROWS, {"target": "kind", "columns": ["size"], "classes": ["a"]}, r"line 2: .* has 'b'"),
        (ROWS, {"delimiter": ";"}, "no column's name|both"),
    ],
)
def test_refusals(text: str, options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=said):
        dayfly.data.csv(table(tmp_path, text), **options).read()


def test_a_text_after_many_numbers_is_found_in_its_line(tmp_path: Path) -> None:
    """In another batch than the one by which the column seemed to be numbers."""
    lines = ["a,y", *(f"{n},{n % 2}" for n in range(200_000)), "oops,1"]
    with pytest.raises(RequestError, match=r"line 200002: column 'a' holds text \('oops'\)"):
        arrays(table(tmp_path, "\n".join(lines)))


def test_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,y\n1,0\n\xff,1\n")
    with pytest.raises(RequestError, match=r"t\.csv: it is not UTF-8 after line 0: .* iconv"):
        arrays(path)


def test_parquet_is_as_csv(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = 1000
    columns = {
        "i": pa.array([None if n == 7 else n for n in range(rows)], pa.int32()),
        "f": pa.array([n / 4 for n in range(rows)], pa.float32()),
        "text": pa.array(["ab"[n % 2] for n in range(rows)]).dictionary_encode(),
        "label": pa.array([n % 3 for n in range(rows)], pa.int8()),
    }
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=64)
    lines = ["i,f,text,label"]
    lines += [f"{'' if n == 7 else n},{n / 4},{'ab'[n % 2]},{n % 3}" for n in range(rows)]
    path = table(tmp_path, "\n".join(lines))
    for missing in ("drop", 5):
        options: dict[str, Any] = {"categories": ["text"], "missing": missing}
        found = dayfly.data.parquet(tmp_path / "t.parquet", **options).read().arrays
        wanted = arrays(path, **options)
        for name, one in wanted.items():
            assert one.dtype == found[name].dtype
            assert one.tobytes() == found[name].tobytes()
    with pytest.raises(RequestError, match=r"t\.parquet, row 7: column 'i' has no value"):
        dayfly.data.parquet(tmp_path / "t.parquet", categories=["text"]).read()


def test_lists_in_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    some = pa.table({"x": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]], "y": [0, 1]})
    parquet.write_table(some, path)
    found = source_of(path).read().arrays["x_train"]
    assert found.tolist() == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
    parquet.write_table(pa.table({"x": [[1, 2], [3]], "y": [0, 1]}), path)
    with pytest.raises(RequestError, match="row 1: column 'x' has lists of 2 and 1 elements: pad"):
        source_of(path).read()
    path.write_bytes(b"PAR1 not")
    with pytest.raises(RequestError, match="cannot be read as Parquet"):
        source_of(path).read()
