"""The user's own data files, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError

ROW = 'value = {}\nsource = "my contract"\nas_of = "2026-10"\n'


def write(directory: Path, file: str, **values: str) -> Path:
    path = directory / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(f"[{key}]\n{ROW.format(value)}" for key, value in values.items()))
    return path


def test_a_row_goes_over_the_built_in_one(tmp_path: Path) -> None:
    write(tmp_path, "platforms/aws-lambda.toml", usd_per_gb_s="1e-5", cold_start_s="2.5")
    built_in, own = Catalogue().platform("aws-lambda"), Catalogue(tmp_path).platform("aws-lambda")
    assert own.overridden == ("cold_start_s", "usd_per_gb_s")
    assert built_in.overridden == ()
    assert (built_in.cold_start_s, own.cold_start_s) == (1.0, 2.5)
    assert own.prices is not None
    assert own.prices.usd_per_gb_s == 1e-5
    assert own.prices.usd_per_request == 2e-7
    assert own.memory_max_mib == built_in.memory_max_mib
    row = Catalogue(tmp_path).rows("platforms", "aws-lambda")["usd_per_gb_s"]
    assert (row.source, row.as_of, row.own) == ("my contract", "2026-10", True)


def test_a_new_file_is_a_new_entry(tmp_path: Path) -> None:
    write(
        tmp_path, "platforms/basement.toml", usd_per_machine_hour="0.5", machine_vcpus="8",
        memory_max_mib="65536", uplink_by_memory="[[1024, 1e6], [2048, 2e6]]", gpu='"old"',
    )  # fmt: skip
    write(tmp_path, "stores/shelf.toml", usd_per_put="0", usd_per_get="0", latency_s="0.001")
    known = Catalogue(tmp_path)
    assert "basement" in known.platforms()
    assert "shelf" in known.stores()
    assert "basement" not in Catalogue().platforms()
    assert known.platform("basement").up_bytes_per_s(1536) == 1.5e6
    assert known.platform("basement").gpu == "old"
    known.store("shelf").check_priced()
    assert known.platform("aws-lambda") == Catalogue().platform("aws-lambda")


@pytest.mark.parametrize(
    "name", ["", "azure", "../aws-lambda", "aws-lambda.toml", "/etc/passwd", "-", "s3"]
)
def test_a_platform_that_is_not_known_is_refused(name: str) -> None:
    with pytest.raises(RequestError) as refused:
        Catalogue().platform(name)
    assert str(refused.value).startswith(f"the catalogue has no platform {name!r}: give one of a")


@pytest.mark.parametrize("name", ["", "aws-lambda", "../stores/s3"])
def test_a_store_that_is_not_known_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="the catalogue has no store"):
        Catalogue().store(name)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("memory_maximum", "1", "memory_maximum is not known to the catalogue"),
        ("name", '"x"', "name is not known to the catalogue"),
        ("prices", "1", "prices is not known to the catalogue"),
        ("overridden", "1", "overridden is not known to the catalogue"),
        ("memory_max_mib", '"much"', 'memory_max_mib.value is "much": give a whole number'),
        ("memory_max_mib", "1.5", "memory_max_mib.value is 1.5: give a whole number"),
        ("memory_max_mib", "true", "memory_max_mib.value is true: give a whole number"),
        ("memory_max_mib", "-1", "memory_max_mib.value is -1: give a whole number above 0"),
        ("memory_step_mib", "0", "memory_step_mib.value is 0: give a whole number above 0"),
        ("usd_per_gb_s", "-1e-5", "usd_per_gb_s.value is -1e-05: give a number from 0"),
        ("usd_per_gb_s", "nan", "usd_per_gb_s.value is NaN: give a number"),
        ("lifetime_max_s", "inf", "lifetime_max_s.value is Infinity: give a number"),
        ("gpu", "3", "gpu.value is 3: give text"),
        ("vcpus_by_memory", "3", "vcpus_by_memory.value is 3: give a list"),
        ("vcpus_by_memory", "[]", "vcpus_by_memory.value: give pairs"),
        ("vcpus_by_memory", "[[1, 2, 3]]", "vcpus_by_memory.value[0] is a list: give a list of 2"),
        (
            "vcpus_by_memory",
            "[[1, -2]]",
            "vcpus_by_memory.value[0][1] is -2: give a number above 0",
        ),
        ("vcpus_by_memory", "[[2, 1], [1, 2]]", "give pairs whose first numbers rise"),
        ("usd_per_gb_hour", "1", "aws-lambda prices memory in two ways"),
    ],
)
def test_a_wrong_row_is_refused(key: str, value: str, said: str, tmp_path: Path) -> None:
    file = write(tmp_path, "platforms/aws-lambda.toml", **{key: value})
    with pytest.raises(RequestError) as refused:
        Catalogue(tmp_path).platform("aws-lambda")
    assert said in str(refused.value)
    assert key in str(refused.value) or "two ways" in said
    assert str(file) in str(refused.value) or "two ways" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a", "is not TOML"),
        pytest.param(f"x = {'[' * 5000}", "is not TOML", id="deep"),
        pytest.param(
            f'[memory_max_mib]\nvalue = {"9" * 400}\nsource = "s"\nas_of = "2026-01"',
            "memory_max_mib.value is 999",
            id="huge",
        ),
        ("memory_max_mib = 3", "memory_max_mib"),
        ("[memory_max_mib]\nvalue = 3", "memory_max_mib"),
        ('[memory_max_mib]\nvalue = 3\nsource = "s"', "lacks"),
        ('[memory_max_mib]\nvalue = 3\nas_of = "2026-01"', "lacks"),
        (
            '[memory_max_mib]\nvalue = 3\nsource = " "\nas_of = "2026-01"',
            "memory_max_mib.source is",
        ),
        ('[memory_max_mib]\nvalue = 3\nsource = "s"\nas_of = "2026"', "memory_max_mib.as_of is"),
        (
            '[memory_max_mib]\nvalue = 3\nsource = "s"\nas_of = 2026-01-01',
            "memory_max_mib.as_of is",
        ),
        (
            '[memory_max_mib]\nvalue = 3\nsource = "s"\nas_of = "2026-01"\nnote = "x"',
            "has an unknown key 'note'",
        ),
    ],
)
def test_a_file_that_is_none_is_refused(text: str, said: str, tmp_path: Path) -> None:
    file = write(tmp_path, "platforms/aws-lambda.toml")
    file.write_text(text)
    with pytest.raises(RequestError) as refused:
        Catalogue(tmp_path).platform("aws-lambda")
    assert said in str(refused.value)
    assert str(file) in str(refused.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, "stores/s3.toml")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(RequestError, match="cannot be read"):
        Catalogue(tmp_path).store("s3")


@pytest.mark.parametrize(
    "stray", ["aws-lambda.toml", "platform/x.toml", "stores/notes.md", "stores/s3.toml.bak"]
)
def test_a_directory_that_holds_something_else_is_refused(stray: str, tmp_path: Path) -> None:
    """A misspelt folder must not be passed over in silence."""
    path = tmp_path / stray
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    with pytest.raises(RequestError, match="is no part of a catalogue"):
        Catalogue(tmp_path)


def test_hidden_files_are_nobodys_business(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write(tmp_path, "stores/.s3.toml.swp")
    assert Catalogue(tmp_path).stores() == Catalogue().stores()


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="is no directory"):
        Catalogue(tmp_path / "gone")
