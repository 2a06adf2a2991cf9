"""Programs that a few lines make elastic: groups come and go, and no loss changes a bit."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench import elastic
from bench.groups import Programs, children
from bench.request import ROOT
from trainyard.contract import EXIT_BAD_CONFIG, EXIT_PREEMPTED

Make = Callable[..., Programs]
EXAMPLES = ROOT / "examples"
PLAIN = EXAMPLES / "elastic" / "train.py"
ENDLESS = "--steps=1000000"


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Programs] = []

    def program(*command: str, groups: str = "{}", python: str = sys.executable) -> Programs:
        words = command or (str(PLAIN), ENDLESS, "--save-every=5")
        made.append(Programs(tmp_path, words, groups, python))
        return made[-1]

    yield program
    for one in made:
        one.stop()


def assert_undisturbed(run: Programs, ranks: int = 1) -> None:
    """Every loss is that of a run of one group, and no step is missing."""
    assert run.compare(ranks) == ([], [])


@pytest.mark.long(120)
def test_any_order_of_changes_leaves_every_loss_as_it_was(
    make: Make, request: pytest.FixtureRequest
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    run = make()
    plan = elastic.plan_changes(200 if request.config.getoption("--full") else 8, seed)
    moments = elastic.play(run, plan, random.Random(seed), lambda *_: None)
    assert [kind for kind, _, _ in moments] == plan
    run.stop()
    assert_undisturbed(run)


def test_a_run_that_has_lost_all_groups_goes_on_from_its_newest_checkpoint(make: Make) -> None:
    run = make()
    first = run.start()
    run.until(lambda: first.last > 7, "a checkpoint and more", [first])
    first.send(signal.SIGKILL)
    first.end()
    again = run.start()
    run.until(lambda: again.last > first.last + 2, "more steps", [again])
    run.stop()
    assert again.steps[0].number % 5 == 1
    assert again.steps[0].number > 1
    assert_undisturbed(run)


@pytest.mark.parametrize("save_every", [5, 0])
def test_a_group_that_was_stopped_and_replaced_joins_again(make: Make, save_every: int) -> None:
    run = make(str(PLAIN), ENDLESS, f"--save-every={save_every}")
    first = run.start()
    run.until(lambda: first.last > 2, "steps", [first])
    first.send(signal.SIGSTOP)
    second = run.start()
    run.until(lambda: second.last > first.last + 2, "steps of the group that took over", [second])
    first.send(signal.SIGCONT)
    run.settle([first, second])
    run.stop()
    assert_undisturbed(run)


def test_an_operator_s_notice_stops_all_groups_with_a_checkpoint(make: Make) -> None:
    run = make()
    first = run.start()
    run.settle([first])
    second = run.join([first])
    (run.folder / "run" / "notice").touch()
    assert [first.end(), second.end()] == [EXIT_PREEMPTED] * 2
    last = max(first.last, second.last)
    assert (run.folder / "run" / "checkpoints" / f"step-{last:08d}").is_dir()
    assert not (run.folder / "run" / "notice").exists()


def test_a_run_with_too_few_groups_waits_and_a_loss_stops_it(make: Make) -> None:
    run = make(groups=json.dumps({"min": 2}))
    first = run.start()
    view = run.folder / "run" / "groups" / "view-00000001.json"
    run.until(view.is_file, "the first view", [first])
    assert first.last == 0
    second = run.join([first])
    second.send(signal.SIGKILL)
    assert first.end() == EXIT_PREEMPTED
    assert_undisturbed(run)


def test_a_group_with_another_program_is_refused(make: Make, tmp_path: Path) -> None:
    run = make()
    first = run.start()
    run.settle([first])
    other = tmp_path / "other.py"
    other.write_text(PLAIN.read_text().replace("width: int = 64", "width: int = 32"))
    run.command = [str(other), *list(run.command)[1:]]
    refused = run.start()
    assert refused.end() == EXIT_BAD_CONFIG
    text = refused.output.read_text()
    assert "elastic: parameters of the model: " in text
    assert "must be the same; start this group with theirs" in text
    assert text.count("\n") == 1


@pytest.mark.long(90)
def test_groups_whose_ranks_hold_one_model_together(
    make: Make, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As `accelerate launch` does for fsdp2.yaml.
    monkeypatch.setenv("FSDP_VERSION", "2")
    monkeypatch.setenv("FSDP_AUTO_WRAP_POLICY", "TRANSFORMER_BASED_WRAP")
    monkeypatch.setenv("FSDP_TRANSFORMER_CLS_TO_WRAP", "LlamaDecoderLayer")
    script = str(EXAMPLES / "accelerate-fsdp2" / "elastic.py")
    run = make(script, ENDLESS, python=str(environment / "bin" / "python"))
    first = run.start(ranks=2)
    run.settle([first])
    second = run.join([first], ranks=2)
    ranks = children(second.process.pid)
    assert len(ranks) == 2
    os.kill(ranks[1], signal.SIGKILL)
    run.settle([first])
    third = run.join([first], ranks=2)
    third.send(signal.SIGTERM)
    run.settle([first])
    run.stop()
    assert_undisturbed(run, ranks=2)


@pytest.mark.long(60)
def test_the_trainer_of_hugging_face(make: Make, environment: Path) -> None:
    words = (str(EXAMPLES / "hf-trainer" / "train.py"), ENDLESS, "--length=32")
    run = make(*words, python=str(environment / "bin" / "python"))
    first = run.start()
    run.settle([first])
    second = run.join([first])
    first.send(signal.SIGKILL)
    run.settle([second])
    run.stop()
    assert_undisturbed(run)
