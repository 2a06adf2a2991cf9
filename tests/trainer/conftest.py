"""A small dataset, a small model, and one uninterrupted run to compare everything with."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox import example_environment
from sandbox.reporting import SandboxError
from tests.trainer import fault_table
from tests.trainer.elastic_groups import SETTINGS, ElasticRun, start_run, stop_run
from tests.trainer.fault_table import Trials
from tests.trainer.ranks import DEADLINE_S, RunFiles
from tests.trainer.runs import CONFIG, Trainer

STEP_S = 0.25
"""For each step of the undisturbed run that a test is compared with, at most."""


@pytest.fixture(scope="session")
def environment(full: bool) -> Path:
    """The examples' environment. Offline without it, tests are skipped, but neither in CI nor with --full."""
    try:
        return example_environment.ensure(print)
    except SandboxError as error:
        if full or "CI" in os.environ:
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few hundred small documents, prepared by the real command."""
    root = tmp_path_factory.mktemp("dataset")
    texts, out = root / "texts", root / "prepared"
    texts.mkdir()
    generator = random.Random(3)
    words = ["def", "return", "self", "import", "if", "else", "x", "y", "(", ")", ":", "\n    "]
    for number in range(60):
        text = " ".join(generator.choice(words) for _ in range(generator.randint(20, 120)))
        (texts / f"{number}.txt").write_text(text)
    command = [sys.executable, "-m", "trainer.prepare", "--source", str(texts), "--out", str(out)]
    subprocess.run([*command, "--shard-tokens", "5000"], check=True, capture_output=True)
    return out


@pytest.fixture(scope="session")
def make_trainer(
    dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Trainer]]:
    """A new place for runs."""
    made: list[Trainer] = []

    def make() -> Trainer:
        root = tmp_path_factory.mktemp("runs")
        config = root / "config.yaml"
        config.write_text(CONFIG)
        made.append(Trainer(root, dataset, config))
        return made[-1]

    yield make
    for trainer in made:
        trainer.end()


@pytest.fixture
def trainer(make_trainer: Callable[[], Trainer]) -> Iterator[Trainer]:
    """A place for the runs of one test."""
    made = make_trainer()
    yield made
    made.end()


@pytest.fixture(scope="session")
def control(make_trainer: Callable[[], Trainer]) -> RunFiles:
    """The uninterrupted run of two ranks."""
    trainer = make_trainer()
    ranks = trainer.start("control")
    assert ranks.wait() == [0, 0], ranks.output()
    return trainer.files("control")


@pytest.fixture(scope="session")
def fault_rows(request: pytest.FixtureRequest, full: bool) -> Iterator[list[Trials]]:
    """What the fault suites did; shown at the end, and written to docs with --full."""
    rows: list[Trials] = []
    yield rows
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    if full and rows:
        page = fault_table.with_table(fault_table.RESULTS.read_text(), rows)
        fault_table.RESULTS.write_text(page)
        assert reporter is not None
        reporter.write_line("\n" + fault_table.table(rows))


@pytest.fixture
def trials(full: bool, fault_rows: list[Trials]) -> Trials:
    """The repetitions of one fault; the seed of their random choices is printed."""
    made = Trials(full)
    print(f"TRAINYARD_TEST_SEED={made.seed}")
    fault_rows.append(made)
    return made


@pytest.fixture(scope="session")
def alone(make_trainer: Callable[[], Trainer]) -> RunFiles:
    """The undisturbed elastic run of one group."""
    run = start_run(make_trainer(), "alone", 1)
    assert run.wait() == [0], run.output()
    return run.files


@pytest.fixture(scope="session")
def undisturbed(make_trainer: Callable[[], Trainer]) -> dict[int, ElasticRun]:
    """By ranks of a group, a run of one group, continued as far as a test needs it."""
    return {
        ranks: ElasticRun(make_trainer(), "undisturbed", settings, ranks)
        for ranks, settings in SETTINGS.items()
    }


@pytest.fixture
def elastic(
    request: pytest.FixtureRequest, trainer: Trainer, undisturbed: dict[int, ElasticRun]
) -> Iterator[ElasticRun]:
    """A run for one test, with groups of `request.param` ranks; stopped and compared at its end."""
    run = ElasticRun(trainer, "run", SETTINGS[request.param], request.param)
    yield run
    if run.view()["members"]:
        stop_run(run)
    losses, other = run.files.losses(), undisturbed[run.ranks]
    if len(other.files.metrics()) < len(losses):
        other.add()
        other.files.until_step(len(losses), DEADLINE_S + STEP_S * len(losses))
        stop_run(other)
    assert losses == other.files.losses()[: len(losses)], run.output()
