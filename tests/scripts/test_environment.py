"""What a script finds in its process, asked for through torch's own functions."""

from __future__ import annotations

import inspect
import os
import re
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.testing._internal.distributed.fake_pg import FakeStore

import dayfly
from dayfly.errors import RequestError
from dayfly.life.platforms.base import Context
from dayfly.runs.scripts.environment import ScriptTask, prepare, variables, wire_backend
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.conformance import NAMESPACE, SOON_S, ChannelPlace
from dayfly.wire.process_group.endpoint import Endpoint, join, leave
from dayfly.wire.process_group.store import StoreServer
from tests.channels.places import PLACES
from tests.channels.processes import in_processes

pytestmark = pytest.mark.long

FILES = "files-tmpfs"
SOON = timedelta(seconds=SOON_S)
KNOWN = ("undefined", "gloo", "nccl", "mpi", "ucc", "xccl", "fake", "dayfly")


def member(rank: int = 0, world_size: int = 1) -> ScriptTask:
    return ScriptTask(
        run="run-7",
        token="secret",
        generation=2,
        store="file:///runs/7",
        channel="file:///",
        wait_timeout_s=SOON_S,
        script="/home/me/train.py",
        module=None,
        args=(),
        cwd="/home/me",
        digest="0" * 64,
        rank=rank,
        world_size=world_size,
        restarts=2,
        max_restarts=3,
        files="/runs/7/files",
    )


@contextmanager
def in_function(place: ChannelPlace, rank: int, world_size: int) -> Iterator[Channel]:
    """As the function of `dayfly run` does it."""
    context = Context(f"worker-{rank}", 0, 0.0, None, None)
    with place.open(NAMESPACE, rank) as channel:
        join(Endpoint(channel=channel, rank=rank, world_size=world_size, wait_timeout_s=SOON_S))
        try:
            with prepare(member(rank, world_size), channel=channel, context=context):
                yield channel
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
            leave()


@contextmanager
def served(name: str) -> Iterator[ChannelPlace]:
    """A place whose coordinator serves the store."""
    with ExitStack() as stack:
        place = stack.enter_context(PLACES[name]())
        coordinator = stack.enter_context(place.make(NAMESPACE))
        over = threading.Event()

        def serve() -> None:
            server = StoreServer(coordinator)
            while not over.wait(0.01):
                server.serve_once()

        serving = stack.enter_context(ThreadPoolExecutor(1)).submit(serve)
        try:
            yield place
        finally:
            over.set()
            serving.result(SOON_S)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Channel]:
    """In the function of a run of one worker, which can make no TCP connection by torch."""
    hook = sys.excepthook
    with served(FILES) as place, in_function(place, 0, 1) as channel:
        monkeypatch.setattr(sys.modules["torch.distributed.rendezvous"], "TCPStore", None)
        yield channel
    sys.excepthook = hook  # which init_process_group replaces


def test_the_variables_literally() -> None:
    assert variables(member(2, 4), threads=3) == {
        "RANK": "2",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "2",
        "GROUP_WORLD_SIZE": "4",
        "ROLE_RANK": "2",
        "ROLE_WORLD_SIZE": "4",
        "ROLE_NAME": "default",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "23702",
        "TORCHELASTIC_RUN_ID": "run-7",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_MAX_RESTARTS": "3",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "OMP_NUM_THREADS": "3",
        "DAYFLY_RUN_DIR": "/runs/7/files",
    }


def test_all_that_torchrun_sets_is_set() -> None:
    source = inspect.getsource(LocalElasticAgent._start_workers)
    source += inspect.getsource(LocalElasticAgent._set_local_rank_env)
    theirs = set(re.findall(r'"([A-Z][A-Z_]+)"', source))
    assert {"RANK", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"} <= theirs
    # Which GPUs there are is the function's own, as it is without `--virtual-local-rank`.
    assert theirs - {"CUDA_VISIBLE_DEVICES"} <= variables(member(), threads=1).keys()


@pytest.mark.parametrize(
    ("asked", "made"),
    [
        ("gloo", "dayfly"),
        ("nccl", "dayfly"),
        ("mpi", "dayfly"),
        ("undefined", "dayfly"),
        ("dayfly", "dayfly"),
        ("cpu:gloo,cuda:nccl", "dayfly"),
        ("CPU:Gloo, CUDA:NCCL", "dayfly"),
        ("cuda:nccl", "dayfly"),
        ("cpu:fake,cuda:nccl", "dayfly"),
        ("fake", "fake"),
        ("cpu:fake,cuda:fake", "cpu:fake,cuda:fake"),
        ("glooo", "glooo"),
        ("cpu:gloo,cuda:hccl", "cpu:gloo,cuda:hccl"),
    ],
)
def test_what_is_asked_for_and_what_is_made(asked: str, made: str) -> None:
    assert wire_backend(asked, KNOWN) == made


@pytest.mark.parametrize(
    "asked",
    [None, "gloo", "GLOO", "nccl", "mpi", "cpu:gloo,cuda:nccl", "dayfly", dist.Backend.GLOO],
)
def test_any_group_of_all_ranks_is_the_wires(alone: Channel, asked: str | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dist.init_process_group(asked)
    assert dist.get_backend() == "dayfly"
    assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
    value = torch.tensor([3.0])
    dist.all_reduce(value)
    assert value.item() == 3.0


def test_so_are_sub_groups_and_meshes(alone: Channel) -> None:
    dist.init_process_group("gloo")
    groups = [dist.new_group([0], backend=name) for name in (None, "gloo", "nccl")]
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "b"))
    groups += [dist.group.WORLD, mesh.get_group("a"), mesh.get_group("b")]
    assert [dist.get_backend(group) for group in groups] == ["dayfly"] * 6
    assert {type(group).__name__ for group in groups} == {"DayflyGroup"}


def test_a_mesh_alone_makes_its_group(alone: Channel) -> None:
    assert init_device_mesh("cpu", (1,)).size() == 1
    assert dist.get_backend() == "dayfly"


def test_fake_stays_fake_and_nonsense_is_torchs_to_refuse(alone: Channel) -> None:
    dist.init_process_group("fake", store=FakeStore(), rank=5, world_size=9)
    assert (dist.get_backend(), dist.get_world_size()) == ("fake", 9)
    dist.destroy_process_group()
    unknown = pytest.raises(AssertionError, match="Unknown backend type glooo")
    with pytest.warns(UserWarning, match="capability of glooo unknown"), unknown:
        dist.init_process_group("glooo")


def test_what_torch_has_for_gloo_alone_is_there(alone: Channel) -> None:
    dist.init_process_group("gloo")
    dist.monitored_barrier()
    dist.monitored_barrier(dist.group.WORLD, timeout=SOON, wait_all_ranks=True)
    dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    with pytest.raises(ValueError, match="only implemented for GLOO"):
        dist.monitored_barrier()


def test_what_other_backends_are_told_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their options; and the device, for which torch would want a communicator of NCCL's."""
    made: list[dict[str, Any]] = []

    def record(
        group_size: int, group_rank: int, global_ranks_in_group: list[int], backend: str,
        store: Any, group_name: str, backend_options: Any = None, timeout: Any = None,
        pg_tag: Any = None, device_id: Any = None, group_desc: Any = None,
    ) -> None:  # fmt: skip
        made.append(dict(locals()))

    monkeypatch.setattr(distributed_c10d, "_new_process_group_helper", record)
    with served(FILES) as place, in_function(place, 0, 1):
        make = distributed_c10d._new_process_group_helper
        device = torch.device("cuda:0")
        make(1, 0, [], "nccl", "store", "0", backend_options="nccl's", device_id=device)
        make(1, 0, [0], "dayfly", "store", "1", backend_options="own", timeout=SOON)
        make(9, 3, [], "fake", "store", "2", backend_options="fake's", device_id=device)
    names = ("backend", "store", "group_name", "backend_options", "device_id", "timeout")
    assert [tuple(call[name] for name in names) for call in made] == [
        ("dayfly", "store", "0", None, None, None),
        ("dayfly", "store", "1", "own", None, SOON),
        ("fake", "store", "2", "fake's", device, None),
    ]


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"init_method": "env://"},
        {"init_method": "env://", "rank": 0, "world_size": 1},
        {"init_method": "tcp://10.1.1.20:23456", "rank": 0, "world_size": 1},
        {"init_method": "tcp://10.1.1.20:23456"},
    ],
    ids=str,
)
def test_ranks_meet_without_an_address(alone: Channel, how: dict[str, Any]) -> None:
    dist.init_process_group("gloo", **how)
    store = dist.distributed_c10d._get_default_store()
    store.set("a", "b")
    assert store.get("a") == b"b"
    assert alone.traffic.counters()["puts"] >= 2, "each is a question to the coordinator"


def test_tutorials_that_set_the_address_themselves_do_no_harm(alone: Channel) -> None:
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "node17.example", "12355"
    dist.init_process_group("nccl", rank=0, world_size=1)
    assert dist.get_backend() == "dayfly"


def test_stores_of_the_scripts_own_stay(alone: Channel, tmp_path: Path) -> None:
    own = dist.HashStore()
    dist.init_process_group("gloo", store=own, rank=0, world_size=1)
    assert dist.get_backend() == "dayfly"
    dist.distributed_c10d._get_default_store().set("mark", "1")
    assert own.num_keys() == 1
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/f", rank=0, world_size=1)
    dist.distributed_c10d._get_default_store().set("mark", "1")
    assert (tmp_path / "f").stat().st_size


@pytest.mark.parametrize(
    "how",
    [
        {"rank": 1, "world_size": 2},
        {"init_method": "tcp://localhost:1234", "rank": 0, "world_size": 4},
        {"store": dist.HashStore(), "rank": 0, "world_size": 3},
    ],
)
def test_another_world_is_refused(alone: Channel, how: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=r"asks for a group as rank . of ., but this is rank 0 "):
        dist.init_process_group("gloo", **how)
    assert not dist.is_initialized()


def test_another_world_of_the_variables_is_refused(alone: Channel) -> None:
    os.environ["WORLD_SIZE"] = "8"
    with pytest.raises(RequestError, match="as rank 0 of 8, but this is rank 0 of 1 of the run"):
        dist.init_process_group("gloo")


def test_scripts_know_that_they_are_launched(alone: Channel) -> None:
    assert dist.is_torchelastic_launched()
    assert dist.get_node_local_rank() == 0
    assert os.environ["OMP_NUM_THREADS"] == str(torch.get_num_threads())
    assert dayfly.remaining_s() == float("inf")


def test_all_is_as_before_whatever_the_script_did() -> None:
    def state() -> list[Any]:
        handlers = sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers
        names = ("_new_process_group_helper", "_get_default_timeout", "monitored_barrier")
        patched = [getattr(distributed_c10d, name) for name in names]
        patched.append(dist.monitored_barrier)
        own = {name: os.environ.get(name) for name in variables(member(), 1)}
        return [dict(handlers), patched, own]

    before = state()

    def script() -> None:
        assert state() != before
        os.environ["RANK"] = "17"
        del os.environ["MASTER_ADDR"]
        dist.init_process_group("gloo", rank=0, world_size=1)
        dist.destroy_process_group()
        raise SystemExit(3)

    hook = sys.excepthook
    with served(FILES) as place:
        serving = threading.enumerate()
        with pytest.raises(SystemExit), in_function(place, 0, 1):
            script()
        assert [one for one in threading.enumerate() if one not in serving] == []
    sys.excepthook = hook
    assert state() == before


@pytest.mark.parametrize("name", [FILES, pytest.param("redis", marks=pytest.mark.slow)])
def test_processes_make_groups_as_under_torchrun(name: str) -> None:
    """With torch's barrier after each group, through the store; nobody has an address."""
    with served(name) as place:
        found = in_processes(_script, place)
    assert found == [
        (6.0, ["from 0", 1], [4.0]),
        (6.0, ["from 0", 1], []),
        (6.0, ["from 0", 1], [4.0]),
    ]


def _script(place: ChannelPlace, rank: int, world_size: int, result: Connection) -> None:
    os.environ["TORCH_DIST_INIT_BARRIER"] = "1"
    with in_function(place, rank, world_size):
        dist.init_process_group("nccl")
        value = torch.tensor([int(os.environ["RANK"]) + 1.0])
        dist.all_reduce(value)
        dist.monitored_barrier(timeout=SOON)
        told = ["from 0", 1] if rank == 0 else [None, None]
        dist.broadcast_object_list(told)
        pair = dist.new_group([0, 2], backend="gloo")
        both = torch.tensor([rank + 1.0])
        if rank in (0, 2):
            dist.all_reduce(both, group=pair)
        result.send((value.item(), told, both.tolist() if rank != 1 else []))
        dist.barrier()
        dist.destroy_process_group()
