"""A script's run in a store: what it wrote for its later generations goes with it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dayfly.errors import RequestError
from dayfly.runs.kept_files import download, keep, take
from dayfly.wire.stores.base import ObjectDamaged, ObjectMissing
from dayfly.wire.stores.files import FileStore
from tests.cli import command

#: Each time it is started, it counts one further; the first time it fails.
SCRIPT = """
import os, sys
from pathlib import Path
import torch.distributed as dist

dist.init_process_group()
file = Path(os.environ["DAYFLY_RUN_DIR"]) / "state" / "count"
count = int(file.read_text()) if file.exists() else 0
dist.barrier()
if dist.get_rank() == 0:
    file.parent.mkdir(exist_ok=True)
    file.write_text(str(count + 1))
dist.barrier()
print(f"counted to {count + 1}", flush=True)
dist.destroy_process_group()
sys.exit(count == 0)
"""


@pytest.mark.long
def test_it_goes_on_elsewhere_with_its_files(tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text(SCRIPT)
    store = tmp_path / "store"
    begun = command.run(
        *("run", "--workers", 2, "--max-restarts", 0, "--store", f"file://{store}"),
        *("--run-dir", "first", "--json", "count.py"),
        cwd=tmp_path,
    )
    assert begun.returncode == 1, begun.stderr
    shutil.rmtree(tmp_path / "first")
    url = f"file://{store / command.last_json(begun.stdout)['run_id']}"
    done = command.run("run", "--resume", url, "--run-dir", "second", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "counted to 2" in done.stderr
    assert (tmp_path / "second" / "files" / "state" / "count").read_text() == "2"
    (one,) = json.loads((Path(url.removeprefix("file://")) / "files.json").read_text())["files"]
    assert one["name"] == "state/count"


def test_all_files_count_or_those_of_before(tmp_path: Path) -> None:
    store, here = FileStore(tmp_path / "store"), tmp_path / "here"
    (here / "a" / "b").mkdir(parents=True)
    (here / "a" / "b" / "odd name, too").write_bytes(b"1" * 3_000_000)
    (here / "empty").write_bytes(b"")
    (here / "link").symlink_to("/etc/passwd")
    keep(store, here)
    (here / "a" / "b" / "odd name, too").write_bytes(b"2")
    (here / "empty").unlink()
    committed = store.get("files.json")
    before = {info.name for info in store.list("files")}
    keep(store, here)
    assert len(list(store.list("files"))) == 1, "what no file has any more is removed"
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "of an earlier copy").write_bytes(b"0")
    take(store, tmp_path / "there")
    files = {one.name: one.read_bytes() for one in (tmp_path / "there").rglob("*") if one.is_file()}
    assert files == {"odd name, too": b"2"}

    (name,) = (info.name for info in store.list("files"))
    assert name not in before
    store.put(name, b"3")
    with pytest.raises(ObjectDamaged, match=name):
        take(store, tmp_path / "there")
    assert committed != store.get("files.json")


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "", ".", "a//b"])
def test_no_name_leads_elsewhere(tmp_path: Path, name: str) -> None:
    store = FileStore(tmp_path / "store")
    kept = {"name": name, "digest": "0" * 32, "size_bytes": 0}
    store.put("files.json", json.dumps({"files": [kept]}).encode())
    with pytest.raises(RequestError, match=r"files\.json.*a path below"):
        take(store, tmp_path / "there")


def test_of_what_is_missing_no_file_is_made(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store")
    with pytest.raises(ObjectMissing):
        download(store, "x", tmp_path / "file")
    assert not (tmp_path / "file").exists()
    store.put("x", b"")
    download(store, "x", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b""
