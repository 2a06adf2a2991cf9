"""Nodes that are lost without notice while their state is in the memory of another one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from sandbox.ports import free_port
from tests.trainer.fault_table import Trials
from tests.trainer.ranks import Hook, RunFiles, held_before, noting_samples, until
from tests.trainer.runs import INTERVAL, STEPS, Trainer, assert_same
from tests.trainer.test_faults_kills import SAMPLES, assert_each_sample_counted_once
from training.checkpoint.factory import find_checkpoints
from training.peer_memory import inventory
from training.peer_memory.inventory import Part
from training.trainer.config import ModelConfig
from trainyard.contract import PEER_MEMORY_ENV
from trainyard.restarts import INDEX_ENV
from trainyard.shared_files import shared_token

pytestmark = pytest.mark.long(157)

SHARDED = ("parallel.shard=2", "peer_memory.every_steps=1", "checkpoint.every_steps=1000")


@dataclass
class Keepers:
    """The keepers of a run's nodes, one rank each."""

    run_dir: Path
    nodes: int = 2
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, *nodes: int) -> None:
        """Start keepers, by default all that do not run; return once they can be reached."""
        for node in nodes or range(self.nodes):
            if node not in self.processes:
                self._start(node)

    def _start(self, node: int) -> None:
        place = self.run_dir / "peer-memory" / f"node-{node}.json"
        place.unlink(missing_ok=True)
        environment = os.environ | {
            PEER_MEMORY_ENV: str(self.socket(node)),
            INDEX_ENV: str(node),
        }
        command = [sys.executable, "-m", "training.peer_memory.keeper"]
        command += ["--run-dir", str(self.run_dir), "--nodes", str(self.nodes)]
        self.processes[node] = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE)
        until(lambda: place.exists() and self.socket(node).exists(), f"keeper {node}")

    def socket(self, node: int) -> Path:
        """Where the ranks of a node find its keeper."""
        return self.run_dir.with_suffix(f".{node}")

    def kill(self, node: int) -> None:
        """Lose it as with its node."""
        self.processes.pop(node).kill()
        self.socket(node).unlink()

    def stop(self, node: int) -> None:
        """Ask it to end; return once it has."""
        process = self.processes.pop(node)
        process.terminate()
        assert process.wait(120) == 0

    def end(self) -> None:
        """Kill what is left."""
        for process in self.processes.values():
            process.kill()
            process.wait()

    def hook(self, then: Hook | None = None) -> Hook:
        """Tell each rank where its node's keeper is."""

        def tell(rank: int) -> None:
            os.environ[PEER_MEMORY_ENV] = str(self.socket(rank))
            if then:
                then(rank)

        return tell


@pytest.fixture
def keepers(trainer: Trainer) -> Iterator[list[Keepers]]:
    """Keepers that a test has started."""
    made: list[Keepers] = []
    yield made
    for one in made:
        one.end()


@pytest.fixture(scope="module")
def sharded(make_trainer: object) -> RunFiles:
    """The undisturbed run of two ranks that share the parameters, without peer memory."""
    trainer: Trainer = make_trainer()  # type: ignore[operator]
    assert trainer.run("sharded", "parallel.shard=2") == [0, 0]
    return trainer.files("sharded")


def lose(
    trainer: Trainer, keepers: Keepers, run: str, step: int, victim: int, *settings: str
) -> int:
    """Start two nodes, kill one after a step; return the last step that was written down."""
    acted, noted = trainer.root / f"{run}.acted", trainer.root / f"{run}.samples"
    keepers.start()
    hook = held_before(min(step + 4, STEPS), acted, keepers.hook(noting_samples(noted, 1)))
    ranks = trainer.start(run, *settings, hook=hook)
    files = trainer.files(run)
    files.until_step(step)
    keepers.kill(victim)
    ranks.signal(signal.SIGKILL, victim)
    acted.touch()
    codes = ranks.wait()
    assert 0 not in codes and 75 not in codes, ranks.output()
    return files.last_step()


def parts(run_dir: Path) -> list[Part]:
    """What the keepers have that can be reached."""
    token, found = shared_token(run_dir / "peer-memory" / "token"), list[Part]()
    for address in inventory.keepers(run_dir):
        with suppress(OSError):
            found += inventory.ask(address, token)
    return found


def lose_again(trainer: Trainer, keepers: Keepers, run: str, victim: int, step: int) -> None:
    """Start the nodes again, and kill one in the first or second step, by `step`, after the state is on both."""
    keepers.start()
    run_dir, attempt = trainer.root / run, len(trainer.files(run).events("started")) + 1
    loaded = inventory.newest_complete(parts(run_dir))[0].stamp
    acted = trainer.root / f"{run}.acted again"
    noted = noting_samples(trainer.root / f"{run}.samples", attempt)
    hook = held_before(loaded.step + step, acted, keepers.hook(noted))
    ranks = trainer.start(run, *SHARDED, hook=hook)

    def is_held() -> bool:
        wanted = replace(loaded, attempt=attempt)
        found = Counter(part.rank for part in parts(run_dir) if part.stamp == wanted)
        return found == {0: 2, 1: 2}

    until(is_held, f"step {loaded.step} on two nodes: {ranks.output()}")
    keepers.kill(victim)
    ranks.signal(signal.SIGKILL, victim)
    acted.touch()
    assert 0 not in ranks.wait(), ranks.output()


def steps_begun(noted: Path) -> int:
    """The newest step of which a sample was taken."""
    return max(int(line.split()[1]) for line in noted.read_text().splitlines()) // SAMPLES + 1


def test_loss_of_a_node_costs_no_step_and_reads_no_storage(
    trainer: Trainer, sharded: RunFiles, trials: Trials, keepers: list[Keepers]
) -> None:
    fault = "node lost without notice, peer memory after each step (recorded steps)"
    for number in trials.numbers(fault, 2, 300):
        run, step = f"run{number}", trials.chance.randrange(1, STEPS - 4)
        files, noted = trainer.files(run), trainer.root / f"run{number}.samples"
        keepers.append(Keepers(trainer.root / run))
        victim = trials.chance.randrange(2)
        killed_at = lose(trainer, keepers[-1], run, step, victim, *SHARDED)
        begun = steps_begun(noted)
        again = number % 2  # then the other node, which alone had the whole state
        if again:
            lose_again(trainer, keepers[-1], run, 1 - victim, trials.chance.randrange(1, 3))
        assert not find_checkpoints(str(trainer.root / run))[1]
        keepers[-1].start()
        hook = keepers[-1].hook(noting_samples(noted, 2 + again))
        assert trainer.run(run, *SHARDED, hook=hook) == [0, 0]
        for resumed in files.events("resumed"):
            assert resumed["source"] == "peer memory"
            trials.lost(max(0, killed_at - resumed["step"]))
            assert resumed["step"] >= killed_at >= step
        # One finished step that is not written down yet, and the one in flight.
        assert begun - files.events("resumed")[0]["step"] <= 2
        assert_each_sample_counted_once(noted, files)
        assert_same(files, sharded)
        keepers[-1].end()
    trials.passed = True


EVERY = 3
EVERY_FEW = (*SHARDED, f"peer_memory.every_steps={EVERY}")


def test_with_snapshots_every_few_steps_at_most_so_many_are_lost(
    trainer: Trainer, sharded: RunFiles, trials: Trials, keepers: list[Keepers]
) -> None:
    for number in trials.numbers("node lost without notice, peer memory every 3 steps", 1, 60):
        run, step = f"run{number}", trials.chance.randrange(2 * EVERY, STEPS - 4)
        keepers.append(Keepers(trainer.root / run))
        killed_at = lose(trainer, keepers[-1], run, step, trials.chance.randrange(2), *EVERY_FEW)
        keepers[-1].start()
        assert trainer.run(run, *EVERY_FEW, hook=keepers[-1].hook()) == [0, 0]
        resumed = trainer.files(run).events("resumed")[-1]
        trials.lost(max(0, killed_at - resumed["step"]))
        # The step after a snapshot is not finished before two nodes have it.
        assert resumed["step"] % EVERY == 0 and killed_at - resumed["step"] <= EVERY
        assert_same(trainer.files(run), sharded)
        keepers[-1].end()
    trials.passed = True


def test_a_snapshot_on_its_way_costs_the_steps_since_the_one_before(
    trainer: Trainer, sharded: RunFiles, keepers: list[Keepers]
) -> None:
    acted, files = trainer.root / "acted", trainer.files("run")
    keepers.append(Keepers(trainer.root / "run"))
    keepers[0].start()
    hook = held_before(2 * EVERY, acted, keepers[0].hook())
    ranks = trainer.start("run", *EVERY_FEW, "collective_timeout_s=600", hook=hook)
    files.until_step(EVERY + 1)
    for process in keepers[0].processes.values():
        process.send_signal(signal.SIGSTOP)
    acted.touch()
    files.until_step(2 * EVERY)
    keepers[0].kill(1)
    ranks.signal(signal.SIGKILL)
    ranks.wait()
    keepers[0].processes[0].send_signal(signal.SIGCONT)
    keepers[0].start()
    assert files.last_step() == 2 * EVERY
    assert trainer.run("run", *EVERY_FEW, hook=keepers[0].hook()) == [0, 0]
    resumed = files.events("resumed")[-1]
    assert (resumed["source"], resumed["step"]) == ("peer memory", EVERY)
    assert_same(files, sharded)


def test_a_lost_state_of_two_nodes_continues_on_one(
    trainer: Trainer, keepers: list[Keepers], sharded: RunFiles
) -> None:
    keepers.append(Keepers(trainer.root / "run"))
    killed_at = lose(trainer, keepers[0], "run", 6, 0, *SHARDED)
    keepers[0].processes[0] = keepers[0].processes.pop(1)
    keepers[0].socket(1).rename(keepers[0].socket(0))
    settings = [*SHARDED, "parallel.shard=1"]
    assert trainer.run("run", *settings, world=1, hook=keepers[0].hook()) == [0]
    files = trainer.files("run")
    assert files.events("resumed")[-1]["step"] >= killed_at
    model = ModelConfig(**files.events("started")[-1]["config"]["model"])
    assert model.parameters() == files.events("started")[-1]["parameters"]
    assert files.losses() == pytest.approx(sharded.losses(), abs=1e-5)


def test_keepers_write_to_storage_what_would_be_lost_with_them(
    trainer: Trainer, keepers: list[Keepers], sharded: RunFiles
) -> None:
    keepers.append(Keepers(trainer.root / "run"))
    killed_at = lose(trainer, keepers[0], "run", 7, 1, *SHARDED)
    keepers[0].stop(0)
    store, steps = find_checkpoints(str(trainer.root / "run"))
    assert len(steps) == 1 and steps[0] >= killed_at
    assert not store.verify(steps[0])
    assert store.manifest(steps[0]).reason == "peer memory"
    assert trainer.run("run", "parallel.shard=2") == [0, 0]
    assert trainer.files("run").events("resumed")[-1]["step"] == steps[0]
    assert_same(trainer.files("run"), sharded)


def test_what_storage_has_already_is_not_written_again(
    trainer: Trainer, keepers: list[Keepers]
) -> None:
    keepers.append(Keepers(trainer.root / "run"))
    keepers[0].start()
    trainer.stop("run", 5, *SHARDED, hook=keepers[0].hook())
    before = find_checkpoints(str(trainer.root / "run"))[1]
    for node in (0, 1):
        keepers[0].stop(node)
    assert find_checkpoints(str(trainer.root / "run"))[1] == before != []


def test_when_both_nodes_are_lost_the_checkpoint_in_storage_is_used(
    trainer: Trainer, keepers: list[Keepers], sharded: RunFiles
) -> None:
    settings = (*SHARDED, f"checkpoint.every_steps={INTERVAL}")
    keepers.append(Keepers(trainer.root / "run"))
    lose(trainer, keepers[0], "run", 2 * INTERVAL + 2, 1, *settings)
    keepers[0].kill(0)
    keepers[0].start()
    assert trainer.run("run", *settings, hook=keepers[0].hook()) == [0, 0]
    resumed = trainer.files("run").events("resumed")[-1]
    assert resumed["step"] % INTERVAL == 0 and resumed["source"] != "peer memory"
    assert_same(trainer.files("run"), sharded)


def test_training_goes_on_without_a_keeper(
    trainer: Trainer, keepers: list[Keepers], sharded: RunFiles
) -> None:
    acted = trainer.root / "acted"
    keepers.append(Keepers(trainer.root / "run"))
    keepers[0].start()
    ranks = trainer.start("run", *SHARDED, hook=held_before(8, acted, keepers[0].hook()))
    trainer.files("run").until_step(5)
    keepers[0].kill(1)
    acted.touch()
    assert ranks.wait() == [0, 0], ranks.output()
    assert "peer memory: " in ranks.output()
    assert_same(trainer.files("run"), sharded)
    # A run that wants peer memory and finds no keeper says so, and trains.
    ranks = trainer.start("other", *SHARDED)
    assert ranks.wait() == [0, 0] and "have no keeper on their node" in ranks.output()


def descendants(pid: int) -> list[int]:
    """A process and all that it has started, whatever their process groups."""
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        for task in Path(f"/proc/{found[-1]}/task").glob("*/children"):
            waiting += map(int, task.read_text().split())
    return found


@dataclass
class Pods:
    """Two nodes as the pods of an indexed-job run them: parent, keeper, launcher, fork server, rank."""

    trainer: Trainer
    run: str
    port: int
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, node: int) -> None:
        """Start a node."""
        folder = self.trainer.root / self.run
        words = [sys.executable, "-m", "trainyard.restarts", "--job-kind=indexed-job"]
        words += ["--max-restarts=5", f"--state={folder}/restarts.json"]
        keeper = f"{sys.executable} -m training.peer_memory.keeper --run-dir {folder} --nodes 2"
        words += [f"--companion={keeper}", "--"]
        words += [sys.executable, "-m", "training.trainer.launch", "--nnodes=2"]
        words += ["--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-id={self.run}"]
        words += [f"--rdzv-endpoint=127.0.0.1:{self.port}", "-m", "training.trainer"]
        words += ["--config", str(self.trainer.config), "--run-dir", str(folder)]
        for setting in (f"data.path={self.trainer.dataset}", *SHARDED, "steps=4000"):
            words += ["--set", setting]
        environment = os.environ | {INDEX_ENV: str(node)}
        with (self.trainer.root / f"{self.run}.{node}.log").open("ab") as log:
            self.processes[node] = subprocess.Popen(
                words, env=environment, stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self, node: int) -> None:
        """Lose a node: everything on it ends at once."""
        process = self.processes.pop(node)
        for pid in descendants(process.pid) if process.poll() is None else []:
            os.kill(pid, signal.SIGKILL)
        process.wait()

    def output(self) -> str:
        """What both printed."""
        return "\n".join(f.read_text() for f in self.trainer.root.glob(f"{self.run}.*.log"))


def test_pods_go_on_from_memory_when_one_is_replaced(trainer: Trainer) -> None:
    pods = Pods(trainer, "pods", free_port())
    files = trainer.files("pods")
    try:
        pods.start(0)
        pods.start(1)
        files.until_step(5)
        survivor = pods.processes[0]
        pods.kill(1)
        killed_at = files.last_step()
        pods.start(1)
        until(lambda: files.events("resumed"), f"a new start: {pods.output()}")
        resumed = files.events("resumed")[0]
        assert resumed["source"] == "peer memory" and resumed["step"] >= killed_at
        files.until_step(resumed["step"] + 5)
        assert pods.processes[0] is survivor and survivor.poll() is None
        # Both have to leave: the run saves as always, and no keeper writes it again.
        for process in pods.processes.values():
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(240) for process in pods.processes.values()]
        assert codes == [75, 75], pods.output()
        store, steps = find_checkpoints(str(trainer.root / "pods"))
        assert [store.manifest(step).reason for step in steps] == ["notice"]
    finally:
        for node in list(pods.processes):
            pods.kill(node)
    assert len(files.losses()) == steps[0]  # each step is there, once
