"""Checks of nodes with real ranks: two nodes on this machine, each with its launcher."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sandbox.ports import free_port
from tests.trainer.ranks import DEADLINE_S, until
from trainer import config as trainer_config
from trainer.parallel.world import join_world
from trainer.validation import gang, ranks, smoke
from trainer.validation.consistency import Expected

pytestmark = pytest.mark.long(53)

MODULE = ("-m", "trainer.validation")

Node = subprocess.Popen[str]
Start = Callable[..., Node]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python with these arguments; ends what is left of it."""
    started: list[Node] = []

    def one(*arguments: str) -> Node:
        started.append(
            subprocess.Popen(
                [sys.executable, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | {"TRAINYARD_POD_IP": "127.0.0.1", "OMP_NUM_THREADS": "1"},
            )
        )
        return started[-1]

    yield one
    for node in started:
        if node.poll() is None:
            node.kill()
            node.wait()


def pair(start: Start, check: str, *more: str) -> list[Node]:
    """Both nodes of a gang that meets on this machine."""
    # The port of the rendezvous follows from the name of the Job.
    meet = ["--nodes=2", f"--job=try-{free_port()}", "--leader=127.0.0.1", "--device=cpu"]
    return [start(*MODULE, check, *meet, *more) for _ in range(2)]


def last_line(node: Node) -> dict[str, Any]:
    """What a node found, once it has ended."""
    out, err = node.communicate(timeout=DEADLINE_S)
    assert out, err
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result | {"log": err[-2000:]}


_LAUNCHERS = {"trainyard.launch", "trainyard.rank", "--no-python"}


def ranks_of(process: int) -> list[int]:
    """Ranks among the descendants of a process."""
    found: list[int] = []
    for child in _children(process):
        words = _words(child)
        if "trainer.validation.ranks" in words and not set(words) & _LAUNCHERS:
            found.append(child)
        found += ranks_of(child)
    return found


def _rank(process: int) -> str:
    """Its number in the gang, from its environment; empty once it is gone."""
    try:
        variables = Path(f"/proc/{process}/environ").read_text().split("\0")
    except OSError:
        return ""
    return dict(one.split("=", 1) for one in variables if "=" in one).get("RANK", "")


def _words(process: int) -> list[str]:
    """Its command line; nothing once it is gone."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text().split("\0")
    except OSError:
        return []


def _children(process: int) -> list[int]:
    """Of all threads of a process; none once it is gone."""
    try:
        texts = [t.read_text() for t in Path(f"/proc/{process}/task").glob("*/children")]
    except OSError:
        return []
    return [int(pid) for text in texts for pid in text.split()]


def test_two_nodes_measure_their_collectives_and_become_the_run(start: Start) -> None:
    command = [sys.executable, "-c", "print('the run trains')"]
    nodes = pair(start, "gate", "--gbps=0.000001", "--", *command)
    outputs = [node.communicate(timeout=DEADLINE_S)[0].splitlines() for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0]
    assert [lines[-1] for lines in outputs] == ["the run trains"] * 2
    result = json.loads(outputs[0][-2])
    assert result["ok"] and result["world_size"] == 2
    assert (result["interface"], result["device"]) == ("lo", "cpu")
    assert result["bandwidth_gbps"] > 0 and set(result["sizes_gbps"]) == {"1Mi", "4Mi", "16Mi"}


def test_a_slow_network_is_reported_with_the_required_bandwidth() -> None:
    config = trainer_config.parse({**ranks.trainer_settings(1), "device": "cpu"})
    with join_world(config) as world:
        finding, facts = ranks.CHECKS["collective"](world, config, Expected(gbps=80.0))
    assert facts["bandwidth_gbps"] == 0 and facts["world_size"] == 1  # nothing to send to
    assert finding and finding.cause.startswith("bus bandwidth is 0.00 GB/s over ")
    assert finding.cause.endswith("80 is wanted") and finding.remedy


def test_a_short_training_learns_on_one_rank_too(monkeypatch: pytest.MonkeyPatch) -> None:
    config = trainer_config.parse({**ranks.trainer_settings(1), "device": "cpu"})
    with join_world(config) as world:
        assert ranks.train(config, world).learned
        monkeypatch.setattr(ranks, "STEPS", 5)
        assert not ranks.train(config, world).learned


def test_a_short_training_over_two_nodes_learns_and_ranks_agree(start: Start) -> None:
    nodes = pair(start, "train-multi", '--expect={"mtu": 1400}')
    result = [last_line(node) for node in nodes]
    assert all(one["last_loss"] < 0.8 * one["first_loss"] for one in result)
    # What the stack says of the network is compared here, too.
    assert [node.returncode for node in nodes] == [1, 1]
    assert result[0]["cause"].startswith("MTU is ") and result[0]["cause"].endswith("has 1400")


IMPATIENT = """
import sys
from trainer.validation import gang
from trainer.validation.gang import Gang
from trainer.validation.consistency import report_verdict

place = {"job": sys.argv[1], "leader": "127.0.0.1", "port": int(sys.argv[2])}
two = Gang(nodes=2, processes=1, device="cpu", collective_s=4.0, **place)
sys.exit(report_verdict(gang.run_check(two, "collective", "collective", "{}")))
"""


def test_a_dead_rank_is_reported_by_its_node_and_its_peer(start: Start) -> None:
    port = str(free_port())
    nodes = [start("-c", IMPATIENT, "try", port) for _ in range(2)]
    found = until(lambda: [n for n in nodes for r in ranks_of(n.pid) if _rank(r) == "1"], "rank 1")
    [second] = found
    [process] = ranks_of(second.pid)
    os.kill(process, signal.SIGKILL)
    [first] = [node for node in nodes if node is not second]
    dead, other = last_line(second), last_line(first)
    assert dead["cause"] == "a rank of this node was ended by SIGKILL"
    # As it may be the dead one's launcher that the other had met at.
    lost = ("another rank is gone or hangs, or cannot be reached", "the place to meet, ")
    assert other["cause"].startswith(lost) and other["remedy"], other
    assert [node.returncode for node in nodes] == [1, 1]


def test_a_failed_rendezvous_is_reported(start: Start) -> None:
    lonely = start(
        *MODULE,
        *("collective", "--nodes=2", f"--job=try-{free_port()}", "--leader=127.0.0.1"),
        *("--device=cpu", "--join-seconds=1"),
    )
    assert "the 2 nodes did not meet at 127.0.0.1:" in last_line(lonely)["cause"]
    assert lonely.returncode == 1


def test_a_healthy_cpu_passes_the_smoke_check(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = smoke.run_smoke(1, "cpu", Expected(models=("a100",)))
    assert verdict.ok
    assert verdict.facts["device"] == "cpu" and verdict.facts["model"]

    def off_by_one(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        product = torch.matmul(left, right)
        if product.ndim == 2:
            product[3, 5] += 1
        return product

    monkeypatch.setattr(torch.Tensor, "__matmul__", off_by_one)
    wrong = smoke.run_smoke(1, "cpu", Expected()).finding
    assert wrong and wrong.cause.startswith("rows of a product of matrices are wrong")


def test_bus_bandwidth_is_what_nccl_tests_call_so() -> None:
    assert ranks.bus_gbps(10**9, 2, 1.0) == pytest.approx(1.0)
    assert ranks.bus_gbps(10**9, 8, 0.5) == pytest.approx(2 * 7 / 8 / 0.5)


def test_sigterm_is_reported_as_an_interruption(start: Start) -> None:
    waiting = start(
        *MODULE,
        *("collective", "--nodes=2", f"--job=try-{free_port()}", "--leader=127.0.0.1"),
        "--device=cpu",
    )
    until(lambda: _children(waiting.pid), "the launcher")
    waiting.send_signal(signal.SIGTERM)
    assert last_line(waiting)["cause"] == gang.INTERRUPTED.cause
