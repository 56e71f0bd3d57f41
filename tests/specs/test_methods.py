"""Names of training methods say a protocol and its settings, and are what settings are called."""

from __future__ import annotations

import pytest

from dayfly.errors import RequestError
from dayfly.runs.settings import Settings
from dayfly.specs.methods import BSP, Method, crossed, method_and_batch


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("bsp", {}),
        ("bsp+int8", {"compress": "int8"}),
        ("hap:2", {"sync": "hap", "aggregators": 2}),
        ("local-sgd:8", {"sync": "local-sgd", "k": 8}),
        ("local-sgd:epoch", {"sync": "local-sgd", "k": "epoch"}),
        ("nesterov:20", {"sync": "local-sgd", "k": 20, "outer": "nesterov"}),
        (
            "nesterov:20+fragments=4+overlap=0",
            {"sync": "local-sgd", "k": 20, "outer": "nesterov", "fragments": 4, "overlap": 0},
        ),
        (
            "momentum:5+outer-lr=0.5+topk:0.01:exact",
            {
                "sync": "local-sgd",
                "k": 5,
                "outer": "momentum",
                "outer_lr": 0.5,
                "compress": "topk:0.01:exact",
            },
        ),
    ],
)
def test_a_name_is_a_methods_settings_and_their_name(
    name: str, settings: dict[str, object]
) -> None:
    method = Method.parse(name)
    assert (method.settings, str(method)) == (settings, name)
    assert Method.of(Settings(workers=4, **settings)) == method  # type: ignore[arg-type]
    assert method.is_plain == (name == "bsp")


def test_usual_values_make_no_other_method() -> None:
    assert Method.parse("local-sgd:8+nesterov+outer-lr=0.7") == Method.parse("nesterov:8")
    assert Method.parse("local-sgd:8+average") == Method.parse("local-sgd:8")
    assert Method.of(Settings(workers=1, sync="local-sgd", k=8)) == BSP
    # Which workers sum is a matter of time: it does not change what bsp learns.
    assert Method.of(Settings(workers=4, collective="k-reduce", aggregators=2)) == BSP


def test_a_batch_size_behind_it() -> None:
    assert method_and_batch("nesterov:20@512") == (Method.parse("nesterov:20"), 512)
    assert method_and_batch("@64") == (BSP, 64)
    assert method_and_batch("bsp") == (BSP, None)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("bps", "there is no training method 'bps'"),
        ("", "there is no training method ''"),
        ("local-sgd", "needs --k"),
        ("local-sgd:0", "'0' is no number from 1"),
        ("local-sgd:8+int8", "whose weights must not be rounded"),
        ("bsp:3", "takes no --k"),
        ("bsp+nesterov", "takes no --outer"),
        ("hap", "the number of workers that sum"),
        ("nesterov:8+outer-lr=fast", "'fast' is no such number"),
        ("nesterov:8+fragments=9", "are more than the 8 steps"),
        ("local-sgd:4+fragments=2", "give an outer optimizer, as in nesterov:20.fragments=4"),
        ("bsp+overlap=1", "stream outer gradients"),
        ("bsp+int8+int4", "says --compress twice"),
        ("nesterov:20+momentum", "says --outer twice"),
        ("nesterov:20+outer-lr=1+outer-lr=2", "says --outer-lr twice"),
        ("bsp+gzip", "--compress 'gzip' is not known"),
        ("bsp@none", "'none' is no batch size"),
    ],
)
def test_what_names_no_method_is_refused(name: str, why: str) -> None:
    with pytest.raises(RequestError, match="(?s)" + why.replace("'", ".")):
        method_and_batch(name)


@pytest.mark.parametrize(
    ("names", "axes", "made"),
    [
        ("bsp", {}, "bsp"),
        (
            "bsp,nesterov:15",
            {"fragments": (2, 4), "overlap": (5,)},
            "bsp,nesterov:15+fragments=2+overlap=5,nesterov:15+fragments=4+overlap=5",
        ),
        (
            "nesterov:8",
            {"fragments": (None, 2), "overlap": (0, 1)},
            "nesterov:8,nesterov:8+fragments=2+overlap=0,nesterov:8+fragments=2+overlap=1",
        ),
        ("nesterov:8+fragments=4", {"fragments": (4,)}, "nesterov:8+fragments=4"),
        (
            "nesterov:8+fragments=4,nesterov:3",
            {"fragments": (2,)},
            "nesterov:8+fragments=4,nesterov:3+fragments=2",
        ),
        # More fragments than steps of a round, for one of the two.
        (
            "nesterov:3,nesterov:8",
            {"fragments": (2, 4)},
            "nesterov:3+fragments=2,nesterov:8+fragments=2,nesterov:8+fragments=4",
        ),
        (
            "bsp,local-sgd:8,bsp+int8",
            {"compress": ("none", "int4")},
            "bsp,bsp+int4,local-sgd:8,bsp+int8",
        ),
        ("nesterov:8", {"overlap": (2,)}, "nesterov:8+overlap=2"),
    ],
)
def test_methods_are_crossed_with_what_they_can_have(
    names: str, axes: dict[str, tuple[object, ...]], made: str
) -> None:
    methods = [Method.parse(name) for name in names.split(",")]
    assert ",".join(map(str, crossed(methods, axes))) == made


@pytest.mark.parametrize(
    ("names", "axes", "why"),
    [
        ("bsp,local-sgd:8", {"fragments": (2,)}, "--fragments 2 is of no method.*add nesterov:20"),
        ("nesterov:3", {"fragments": (2, 4)}, "--fragments 4 .*more than the 3 steps"),
        ("nesterov:4", {"overlap": (4,)}, "nesterov:4: --overlap 4 must be less than --k 4"),
        ("bsp,local-sgd:8", {"compress": ("int8",)}, "local-sgd:8: .*cannot have --compress int8"),
        ("bsp", {"compress": ("gzip",)}, "gzip"),
        ("nesterov:8+fragments=4", {"fragments": (2,)}, "--fragments 2 is of no method"),
        ("nesterov:8", {"fragments": (None,), "overlap": (2,)}, "--overlap 2 is of no method"),
    ],
)
def test_values_that_no_method_can_have_are_refused(
    names: str, axes: dict[str, tuple[object, ...]], why: str
) -> None:
    with pytest.raises(RequestError, match=why):
        crossed([Method.parse(name) for name in names.split(",")], axes)
