"""The tests that every platform passes: derive from `PlatformConformance` and give it one.

    class TestMine(PlatformConformance):
        @pytest.fixture(scope="class")
        @classmethod
        def opened(cls, tmp_path_factory):
            with Session.open() as session:
                opening = Opening(session=session, logs=tmp_path_factory.mktemp("logs"))
                with MyPlatform.open(opening, MyPlatform.Options()) as platform:
                    yield platform

Functions find dayfly where they run, as the handlers stand in `conformance_handlers` beside this
file. pytest is needed here alone; `pytest.register_assert_rewrite` with this module's name, in a
conftest.py, shows values in failures.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from dayfly.errors import RequestError
from dayfly.life.platforms.base import Ended, Invocation, Json, Outcome, Platform
from dayfly.specs.functions import FunctionSpec

HANDLERS = "dayfly.life.platforms.conformance_handlers"
#: Until functions that are to end have ended; generous, as places differ by how soon they start.
SOON_S = 300.0
#: What a handler needs beside what it allocates on purpose.
ROOMY_MIB = 500


def call(
    function: str, handler: str, payload: Json | None = None, attempt: int = 0, **spec: Any
) -> Invocation:
    """One of the handlers, invoked.

    Args:
        spec: fields of `FunctionSpec`.
    """
    return Invocation(
        function=function,
        attempt=attempt,
        handler=f"{HANDLERS}:{handler}",
        payload=payload or {},
        spec=FunctionSpec(**spec),
    )


def run(platform: Platform, handler: str, payload: Json | None = None, **spec: Any) -> Ended:
    """Invoke one function, and wait for its end."""
    platform.invoke(call("solo", handler, payload, **spec))
    return wait_for_all(platform, ["solo"])["solo"]


def wait_for_all(platform: Platform, functions: Sequence[str]) -> dict[str, Ended]:
    """Until all of them have ended."""
    missing, ended = set(functions), {}
    give_up_at = time.monotonic() + SOON_S
    while missing:
        assert time.monotonic() < give_up_at, f"{missing} did not end within {SOON_S} s"
        for one in platform.wait(1.0):
            ended[one.invocation.function] = one
            missing.discard(one.invocation.function)
    return ended


def printed(platform: Platform, function: str) -> str:
    """All that a function has printed."""
    text, position = b"", ""
    while (more := platform.log(function, position)).text:
        text, position = text + more.text, more.position
    return text.decode()


def wait_until_printed(platform: Platform, function: str, word: str) -> None:
    """Until a function that goes on has printed a word."""
    give_up_at = time.monotonic() + SOON_S
    while word not in printed(platform, function):
        assert time.monotonic() < give_up_at, f"{function} did not print {word!r}"
        assert list(platform.wait(0.05)) == [], "nothing ends meanwhile"


class PlatformConformance:
    """What is promised by `Platform`, one test a promise."""

    @pytest.fixture(scope="class")
    @classmethod
    def opened(cls) -> Iterator[Platform]:
        """A platform for all tests of the class: opening one may take long."""
        raise NotImplementedError("give the suite a platform: override this fixture")

    @pytest.fixture
    def platform(self, opened: Platform) -> Iterator[Platform]:
        """With nothing running before and after the test."""
        yield opened
        for function in opened.running():
            opened.cancel(function)
        wait_for_all(opened, opened.running())

    def test_functions_that_start_together_all_come_back(self, platform: Platform) -> None:
        names = [f"worker-{number}" for number in range(3)]
        platform.invoke_all([call(name, "echo", {"name": name}) for name in names])
        assert set(platform.running()) <= set(names)
        ended = wait_for_all(platform, names)
        assert [ended[name].result for name in names] == [{"name": name} for name in names]

    def test_the_result_comes_back(self, platform: Platform) -> None:
        payload = {"text": "äß", "list": [1, 2.5, None], "nested": {"yes": True}}
        ended = run(platform, "echo", payload)
        assert (ended.outcome, ended.result, ended.error) == (Outcome.RETURNED, payload, None)
        assert ended.init_s >= 0
        assert ended.run_s >= 0
        assert platform.running() == []

    def test_a_function_knows_itself(self, platform: Platform) -> None:
        spec = {"memory_mib": ROOMY_MIB, "lifetime_s": 20.0}
        platform.invoke(call("worker-7", "tell", {}, 3, environment={"A_NAME": "a value"}, **spec))
        told = wait_for_all(platform, ["worker-7"])["worker-7"].result
        assert told is not None
        assert (told["function"], told["attempt"], told["memory_mib"]) == ("worker-7", 3, ROOMY_MIB)
        assert 0 < told["remaining_s"] <= 20
        assert told["variable"] == "a value"
        assert told["threads"] == 1

    def test_computing_gives_the_same_bits_again(self, platform: Platform) -> None:
        first, second = (run(platform, "train").result for _ in range(2))
        assert first is not None
        assert first == second

    def test_an_exception_comes_with_the_traceback_of_the_users_code(
        self, platform: Platform
    ) -> None:
        ended = run(platform, "raise_error")
        assert (ended.outcome, ended.error) == (Outcome.RAISED, "ValueError: no luck")
        assert 'raise ValueError("no luck")' in ended.detail
        assert "local_function" not in ended.detail
        assert ended.detail in printed(platform, "solo")

    def test_a_handler_that_is_not_there(self, platform: Platform) -> None:
        ended = run(platform, "not_there")
        assert ended.outcome is Outcome.RAISED
        assert "not_there" in (ended.error or "")

    def test_keyboard_interrupt_in_user_code_is_an_exception(self, platform: Platform) -> None:
        ended = run(platform, "interrupt")
        assert (ended.outcome, ended.error) == (Outcome.RAISED, "KeyboardInterrupt")

    @pytest.mark.parametrize("handler", ["exit_by_system_exit", "exit_hard"])
    @pytest.mark.parametrize("code", [3, 0])
    def test_a_function_that_ends_itself(self, platform: Platform, handler: str, code: int) -> None:
        ended = run(platform, handler, {"code": code})
        assert (ended.outcome, ended.result) == (Outcome.EXITED, None)
        assert ended.detail.startswith(f"exit code {code}")

    def test_a_crash(self, platform: Platform) -> None:
        ended = run(platform, "crash")
        assert (ended.outcome, ended.detail) == (Outcome.EXITED, "signal SIGSEGV")
        assert "in crash" in printed(platform, "solo")

    def test_cancel(self, platform: Platform) -> None:
        platform.invoke(call("solo", "sleep", {"seconds": 600}))
        wait_until_printed(platform, "solo", "asleep")
        platform.cancel("solo")
        assert wait_for_all(platform, ["solo"])["solo"].outcome is Outcome.CANCELLED
        platform.cancel("solo")
        platform.cancel("never-seen")

    def test_cancel_before_it_runs(self, platform: Platform) -> None:
        platform.invoke(call("solo", "sleep", {"seconds": 600}))
        platform.cancel("solo")
        assert wait_for_all(platform, ["solo"])["solo"].outcome is Outcome.CANCELLED

    def test_one_that_is_stopped_does_not_come_back_where_that_is_promised(
        self, platform: Platform
    ) -> None:
        if not platform.ends_stopped:
            pytest.skip("workers send heartbeats there")
        ended = run(platform, "stop_itself")
        assert (ended.outcome, ended.result) == (Outcome.KILLED, None)

    def test_the_lifetime_bites(self, platform: Platform) -> None:
        ended = run(platform, "sleep", {"seconds": 600}, lifetime_s=0.3)
        assert ended.outcome is Outcome.LIFETIME
        assert "0.3 s" in ended.detail
        assert ended.run_s < 600

    def test_without_a_lifetime_the_same_handler_lives_on(self, platform: Platform) -> None:
        ended = run(platform, "sleep", {"seconds": 1.0})
        assert ended.outcome is Outcome.RETURNED
        assert ended.run_s >= 1.0

    def test_the_memory_limit_bites(self, platform: Platform) -> None:
        ended = run(platform, "allocate", {"mib": 400}, memory_mib=ROOMY_MIB)
        assert ended.outcome is Outcome.OUT_OF_MEMORY
        assert f"limit {ROOMY_MIB} MiB" in ended.detail
        assert ended.peak_mib is None or ended.peak_mib <= ROOMY_MIB

    @pytest.mark.parametrize("memory_mib", [None, ROOMY_MIB + 400])
    def test_with_more_memory_the_same_handler_returns(
        self, platform: Platform, memory_mib: int | None
    ) -> None:
        ended = run(platform, "allocate", {"mib": 400}, memory_mib=memory_mib)
        assert (ended.outcome, ended.result) == (Outcome.RETURNED, {"mib": 400})
        assert ended.peak_mib is None or ended.peak_mib >= 400

    def test_too_little_memory_for_the_runtime_is_refused(self, platform: Platform) -> None:
        least_mib = platform.least_memory_mib()
        for request in (
            lambda: platform.check([FunctionSpec(memory_mib=least_mib - 1)]),
            lambda: platform.invoke(call("solo", "echo", memory_mib=least_mib - 1)),
        ):
            with pytest.raises(RequestError, match="at least"):
                request()
        assert platform.running() == []
        platform.check([FunctionSpec(memory_mib=least_mib)] * 2)
        assert run(platform, "echo", memory_mib=least_mib).outcome is Outcome.RETURNED

    def test_the_log_has_all_attempts_and_last_words(self, platform: Platform) -> None:
        assert platform.log("nobody").text == b""
        assert platform.log("nobody", platform.log_end("nobody")).text == b""
        for attempt, word in enumerate(["first", "second"]):
            before = platform.log_end("logger")
            payload = {"word": word, "die": attempt == 1}
            platform.invoke(call("logger", "print_lines", payload, attempt))
            wait_for_all(platform, ["logger"])
            text = platform.log("logger", before).text.decode()
            assert text.splitlines() == [f"out {word}", f"err {word}"]
        lines = printed(platform, "logger").splitlines()
        assert lines == ["out first", "err first", "out second", "err second"]

    def test_several_at_once(self, platform: Platform) -> None:
        names = [f"worker-{i}" for i in range(6)]
        for name in names:
            platform.invoke(call(name, "sleep", {"seconds": 600}))
        for name in names:
            wait_until_printed(platform, name, "asleep")
        assert platform.running() == names
        for name in names:
            platform.cancel(name)
        ended = wait_for_all(platform, names)
        assert {one.outcome for one in ended.values()} == {Outcome.CANCELLED}

    def test_wait_gives_up_in_time(self, platform: Platform) -> None:
        platform.invoke(call("solo", "sleep", {"seconds": 600}))
        before = time.monotonic()
        assert list(platform.wait(0.1)) == []
        assert time.monotonic() - before >= 0.1

    @pytest.mark.parametrize("name", ["Worker", "a_b", "", "../up", "-x", "a\n"])
    def test_names_that_cannot_be(self, platform: Platform, name: str) -> None:
        with pytest.raises(ValueError, match="letters, digits, hyphens"):
            platform.invoke(call(name, "echo"))

    def test_one_invocation_of_a_function_at_a_time(self, platform: Platform) -> None:
        platform.invoke(call("solo", "sleep", {"seconds": 600}))
        with pytest.raises(ValueError, match="solo is still running"):
            platform.invoke(call("solo", "echo", attempt=1))

    @pytest.mark.parametrize(
        "payload", [{"x": {1, 2}}, {"x": float("nan")}, {"x": "y" * (6 * 2**20)}, [1]]
    )
    def test_payloads_that_cannot_travel(self, platform: Platform, payload: Any) -> None:
        with pytest.raises(ValueError, match="the payload of solo"):
            platform.invoke(call("solo", "echo", payload))
        assert platform.running() == []

    @pytest.mark.parametrize("handler", ["return_tensor", "return_number"])
    def test_results_that_are_not_json_are_refused(self, platform: Platform, handler: str) -> None:
        ended = run(platform, handler)
        assert ended.outcome is Outcome.RAISED
        assert f"the result of {HANDLERS}:{handler}" in (ended.error or "")

    def test_large_payloads_and_results(self, platform: Platform) -> None:
        text = "z" * (5 * 2**20)
        ended = run(platform, "echo", {"text": text})
        assert ended.result == {"text": text}
        too_large = run(platform, "return_bytes", {"size": 6 * 2**20})
        assert too_large.outcome is Outcome.RAISED
        assert "at most" in (too_large.error or "")
