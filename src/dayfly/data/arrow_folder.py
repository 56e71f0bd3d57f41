"""Hugging Face's datasets as `save_to_disk` leaves them: streams of Arrow in a directory.

D/dataset_dict.json  {"splits": ["train", "test"]}      of several splits, each in a folder
D/train/state.json   {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
D/train/dataset_info.json   {"features": {"label": {"names": [...], "_type": "ClassLabel"}}}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from dayfly.data.arrow import batch_of, pyarrow
from dayfly.data.tables import Batch, Table, TableSource
from dayfly.errors import RequestError, in_short
from dayfly.misspelt import suggests

_VALIDATION = ("validation", "val", "test")
#: Rows that are looked at together.
_ROWS = 2**14


@suggests
@dataclass(frozen=True, kw_only=True)
class HuggingFaceFolder(TableSource):
    """A directory that `save_to_disk` of a Dataset or a DatasetDict made; read by pyarrow alone.

    Of a DatasetDict, `train` is trained on, and `validation`, `val` or `test` validated on, unless
    `validation` names another directory. Names of ClassLabels are those of the classes.
    """

    name: ClassVar[str] = "huggingface"
    form: ClassVar[str] = "a dataset of Hugging Face, from disk"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        return any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))

    def table(self, path: Path) -> Table:
        return _Streams(path)

    def tables(self) -> tuple[Table, Table | None]:
        root = self.expanded_path
        if not (root / "dataset_dict.json").is_file():
            return super().tables()
        splits = _json(root / "dataset_dict.json").get("splits")
        if not isinstance(splits, list) or "train" not in splits:
            raise RequestError(f"{root} has no split `train`: name the directory of one split")
        unseen = next((root / name for name in _VALIDATION if name in splits), None)
        if self.validation is not None:
            unseen = Path(self.validation).expanduser()
        return self.table(root / "train"), None if unseen is None else self.table(unseen)


class _Streams(Table):
    def __init__(self, path: Path) -> None:
        self.path = path
        named = _json(path / "state.json").get("_data_files")
        try:
            names = [str(one["filename"]) for one in named] if named else []
        except (TypeError, KeyError):
            names = []
        if not names or any(Path(name).name != name for name in names):
            raise self.refusal("its state.json names no files of data: save it by save_to_disk")
        self._files = [path / name for name in names]
        self.names = list(next(self._opened(self._files[:1])).schema.names)
        features = _json(path / "dataset_info.json").get("features")
        self.class_names = {
            name: [str(text) for text in one["names"]]
            for name, one in (features.items() if isinstance(features, dict) else ())
            if isinstance(one, dict) and one.get("_type") == "ClassLabel" and one.get("names")
        }

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        row = 0
        for stream in self._opened(self._files):
            while (whole := self._next(stream)) is not None:
                for start in range(0, whole.num_rows, _ROWS):
                    record = whole.select(list(names)).slice(start, _ROWS)
                    yield batch_of(self, record, row)
                    row += record.num_rows

    def _next(self, stream: Any) -> Any:
        try:
            return stream.read_next_batch()
        except StopIteration:
            return None
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error

    def _opened(self, files: Sequence[Path]) -> Iterator[Any]:
        pa, ipc = pyarrow("pyarrow"), pyarrow("pyarrow.ipc")
        for path in files:
            try:
                with pa.memory_map(str(path)) as memory, ipc.open_stream(memory) as stream:
                    yield stream
            except (OSError, ValueError) as error:
                raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> RequestError:
        return self.refusal(
            f"it cannot be read as streams of Arrow: {in_short(error)}: save it anew by "
            "save_to_disk"
        )


def _json(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RequestError(
            f"{path} cannot be read: {in_short(error)}: save the dataset anew by save_to_disk"
        ) from error
    if not isinstance(tree, dict):
        raise RequestError(f"{path} has no object of JSON: save the dataset anew by save_to_disk")
    return tree
