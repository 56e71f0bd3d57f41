"""Wrong requests: exit code 2, one sentence that says what to change, nothing left behind.

Most are typed in the test's own process; that the command ends with the code is seen at the last.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli import command

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--workers", "0"], "--workers 0"),
        (["--workers", "129"], "a batch of 128 cannot be shared by 129 workers"),
        (["--workers", "two"], "Invalid value for"),
        (["--platform", "moon"], "give one of local"),
        (["--platform-option", "memory"], "--platform-option 'memory': give NAME=VALUE"),
        (["--platform-option", "memory=3"], "settings of platform local: memory is 3: give"),
        (["--channel", "carrier-pigeon://x"], "give one of file:///path"),
        (["--channel", "file://relative"], "give an absolute path, as in file:///path"),
        (["--channel", "redis://:hunter2@host"], "as DAYFLY_CHANNEL_PASSWORD"),
        (["--compress", "zip"], "--compress 'zip' is not known"),
        (["--compress", "topk:2"], "above 0 and at most 1, such as topk:0.01"),
        (["--sync", "never"], "give one of bsp"),
        (["--collective", "shout"], "give one of all-reduce"),
        (["--collective", "k-reduce"], "k-reduce needs --aggregators"),
        (["--collective", "push-pull"], "push-pull needs a channel that sums"),
        (["--aggregators", "1"], "--aggregators 1 is for --collective k-reduce"),
        (["--memory", "-5"], "--memory -5"),
        (["--memory", "64"], "needs at least"),
        (["--lifetime", "0"], "--lifetime 0"),
        (["--lifetime", "0.5"], "--lifetime 0.5 s: give more than 0.5 s, which a worker alone"),
        (["--cpu", "0"], "--cpu 0 cores: give a number above 0"),
        (["--cpu", "0.0005"], "give at least 0.001 cores"),
        (["--uplink", "-1"], "--uplink -1 MB/s: give a number above 0"),
        (["--downlink", "nan"], "--downlink nan MB/s: give a number above 0"),
        (["--latency", "-1"], "--latency -1 ms: give a number above 0"),
        (["--cold-start", "inf"], "--cold-start inf s: give a number above 0"),
        (["--payload", "0"], "--payload 0 KB: give a number above 0"),
        (["--payload", "1"], "payloads of 1 KB are too small"),
        (["--gpu", "0"], "--gpu 0: give the share of a GPU that each function gets, above 0"),
        (["--gpu", "2"], "above 0 and at most 1, such as 0.5"),
        (["--imitate", "aws-lambda"], "--imitate aws-lambda needs --memory"),
        (
            ["--imitate", "aws-lambda", "--memory", "20480"],
            "aws-lambda has no functions of 20480 MiB: give 128 to 10240 MiB",
        ),
        (["--imitate", "nowhere", "--memory", "1024"], "the catalogue has no platform 'nowhere'"),
        (["--epochs", "0"], "epochs is 0"),
        (["--batch-size", "0"], "batch_size is 0"),
        (["--target-accuracy", "97"], "such as 0.97"),
        (["--cut", "4,x"], "--cut '4,x' is no list of whole numbers: give them with commas"),
        (["--cut", "0"], "--cut 0: give ascending numbers of layers from 1, such as 4,9"),
        (["--cut", "40"], "--cut 40: the model has 4 layers: give ascending numbers from 1 to 3"),
        (["--replicas", "2"], "--replicas is for a model in stages: give --cut, too"),
        (["--cut", "1,2", "--workers", "5"], "--workers 5 are not 3 stages times any number of"),
        (
            ["--cut", "1,2", "--stage-memory", "512,512"],
            "--stage-memory 512,512: --cut makes 3 stages, so give 3 sizes in MiB",
        ),
        (["--cut", "2", "--stage-memory", "512,x"], "commas between, as in 1024,512"),
        (["--cut", "2", "--stage-memory", "512,64"], "or --stage-memory of that stage"),
        (["--cut", "2", "--sync", "local-sgd", "--k", "2"], "--sync local-sgd cannot have --cut"),
        (["--cut", "2", "--compress", "int8"], "--compress int8 is for models that are not cut"),
        (["--cut", "2", "--channel", "ps://127.0.0.1:1"], "ps:// only sums: give a store, or tcp"),
        (["--resume", "."], "what is in the run's directory: leave out --run-dir"),
        (["--allow-changed-job"], "--allow-changed-job is for a run that goes on: add --resume"),
        (["--bananas"], "No such option"),
    ],
)
def test_a_wrong_flag(flags: list[str], words: str, fast: Path, tmp_path: Path) -> None:
    done = command.here("train", fast, "--run-dir", "run", *flags, cwd=tmp_path, COLUMNS="300")
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "is not there"),
        ("import nonsense_that_is_not_installed", "fails at"),
        ("jobs = 1", "has no variable `job`"),
        ("job = 1", "write job = dayfly.Job(...)"),
        ("import dayfly; job = dayfly.Job()", "has no model"),
        ("import dayfly; job = dayfly.Job(modle=1)", "modle"),
        ("def f(:", "SyntaxError"),
    ],
)
def test_a_wrong_job_file(text: str | None, words: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "wrong.py").write_text(text)
    done = command.here("train", "wrong.py", "--json", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert command.last_json(done.stdout)["status"] == "failed"
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "loss=nn.functional.cross_entropy",
            "step=lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1])",
            "a job with a step= of its own cannot be cut",
        ),
        (
            "nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))",
            "type('Net', (nn.Linear,), {'forward': lambda self, x: "
            "nn.functional.linear(x.flatten(1), self.weight)})(64, 10)",
            "is a Net, which is no list of layers: give an nn.Sequential",
        ),
        (
            "torch.optim.SGD(params, ",
            "torch.optim.SGD([{'params': [p]} for p in params], ",
            "let its function make the same groups of any stage's parameters",
        ),
        (
            "nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))",
            "(lambda one, two: (setattr(two, 'weight', one.weight), "
            "nn.Sequential(nn.Flatten(), one, nn.ReLU(), two))[1])(nn.Linear(64, 64), "
            "nn.Linear(64, 64))",
            "--cut 2 parts layers that share weights: 1.weight and 3.weight are one tensor",
        ),
    ],
    ids=["step", "no list", "groups", "tied"],
)
def test_a_job_that_cannot_be_cut_so(
    old: str, new: str, words: str, fast: Path, tmp_path: Path
) -> None:
    fast.write_text(fast.read_text().replace(old, new))
    flags = ("--cut", "2", "--run-dir", "run")
    done = command.here("train", fast, *flags, cwd=tmp_path, COLUMNS="300")
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.quick
def test_a_run_directory_that_is_not_empty_is_left_alone(fast: Path, tmp_path: Path) -> None:
    mine = tmp_path / "run" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("precious")
    done = command.run("train", fast, "--run-dir", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert [path.name for path in mine.parent.iterdir()] == ["mine.txt"]


def test_nothing_to_do_is_said(tmp_path: Path) -> None:
    done = command.run("train", cwd=tmp_path)
    assert done.returncode == 2
    assert "no job" in done.stderr
