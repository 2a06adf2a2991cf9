"""Peer memory: which snapshot counts, what runs may have it, and what their pods run."""

from __future__ import annotations

import copy
import dataclasses
import json
import socket
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.config import ConfigError
from tests.golden.example_runs import (
    IMAGE,
    RUN_FILE,
    TRAINER_CONFIG,
    platform,
    project_in,
    write_runs,
)
from tests.unit.infra.config_issues import codes
from tests.waiting import until
from training.deployment import run_files
from training.deployment.job import manifests
from training.peer_memory import keeper as keeper_module
from training.peer_memory import wire
from training.peer_memory.inventory import Part, distrust, newest_complete, trusted
from training.peer_memory.keeper import Keeper
from training.peer_memory.slots import RankMemory, Stamp
from training.spec import RunSpec
from training.trainer.peer_memory import RecentSteps
from trainyard.run_logs import MetricsLog, StepMetrics

SETTINGS = {"peer_memory": {"every_steps": 1}}
DIVIDED = {"jobKind": "indexed-job", "parallelism": {"shard": 16}, "overrides": SETTINGS}


def load(folder: Path, **keys: Any) -> list[RunSpec]:
    """The run of a file with these keys."""
    project = project_in(folder)
    write_runs(project, copy.deepcopy(RUN_FILE | DIVIDED | keys))
    return run_files.load(["llama"], platform(), {"trainer": IMAGE}, project)


def test_a_keeper_runs_as_long_as_the_pod_and_is_reached_at_its_address(tmp_path: Path) -> None:
    [run] = load(tmp_path)
    job = manifests(run, platform(), "c" * 40)[-1]
    [container] = job["spec"]["template"]["spec"]["containers"]
    grace = job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert (
        f"--companion=python -m training.peer_memory.keeper --run-dir {run.run_dir} --nodes 2 "
        f"--grace-seconds {grace}" in container["command"][: container["command"].index("--")]
    )
    [address] = [one for one in container["env"] if one["name"] == "TRAINYARD_POD_IP"]
    assert address["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"


@pytest.mark.parametrize(
    ("keys", "issues"),
    [
        ({}, []),
        ({"jobKind": "jobset"}, ["config: peer_memory.every_steps: unsupported-job-kind"]),
        (
            {"nodes": 1, "parallelism": {"shard": 8}},
            ["config: peer_memory.every_steps: single-node"],
        ),
        # 8.2 billion parameters: 98 GB, of which a node keeps 5 times a half.
        (
            {"overrides": SETTINGS | {"model": {"hidden_size": 8192, "layers": 12, "heads": 64}}},
            [],
        ),
        (
            {
                "overrides": SETTINGS
                | {"model": {"hidden_size": 8192, "layers": 12, "heads": 64, "kv_heads": 64}},
                "resources": {"cpu": "80", "memory": "80Gi", "shm": "8Gi"},
            },
            ["resources.memory: too-little-memory"],
        ),
        (
            {"overrides": {"peer_memory": {"every_steps": -1}}},
            ["config: peer_memory.every_steps: out-of-range"],
        ),
    ],
)
def test_a_run_without_a_second_place_for_its_state_is_refused(
    keys: dict[str, Any], issues: list[str], tmp_path: Path
) -> None:
    if not issues:
        assert load(tmp_path, **keys)
        return
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, **keys)
    assert codes(caught.value) == [f"training/runs/llama.yaml: {issue}" for issue in issues]


def part(step: int, rank: int, *, world: int = 2, attempt: int = 1, port: int = 1) -> Part:
    """A part of a snapshot on a node."""
    stamp = Stamp(step=step, attempt=attempt, world=world)
    return Part(stamp=stamp, rank=rank, files={"a": (0, 1)}, address={"host": "h", "port": port})


def test_the_newest_snapshot_counts_of_which_no_part_is_missing() -> None:
    parts = [part(7, 0), part(6, 0), part(6, 1, port=2), part(5, 0), part(5, 1)]
    assert [(one.stamp.step, one.rank) for one in newest_complete(parts)] == [(6, 0), (6, 1)]
    assert newest_complete(parts[:2]) == []
    # The same step of another start of the gang is another state.
    assert newest_complete([part(8, 0), part(8, 1, attempt=2)]) == []
    # A copy serves as well as the node's own part.
    assert len(newest_complete([part(8, 0, port=2), part(8, 1, port=2)])) == 2


def test_snapshots_of_a_state_that_replicas_disputed_are_not_used(tmp_path: Path) -> None:
    (tmp_path / "peer-memory").mkdir()
    parts = [part(8, 0), part(8, 1), part(4, 0), part(4, 1)]
    assert trusted(tmp_path, parts) == parts
    distrust(tmp_path, attempt=1, after_step=5)
    assert newest_complete(trusted(tmp_path, parts)) == parts[2:]
    later = [part(9, 0, attempt=2), part(9, 1, attempt=2)]
    assert newest_complete(trusted(tmp_path, parts + later)) == later


def test_parts_travel_as_json() -> None:
    assert Part.from_json(part(3, 1).to_json()) == part(3, 1)


def test_a_new_snapshot_never_replaces_the_newest_whole_one() -> None:
    memory = RankMemory.of_size(4096)
    for step in range(1, 6):
        slot = memory.slots[memory.next_slot(1, None)]
        assert slot.stamp is None or slot.stamp.step == step - 2
        slot.stamp = None
        slot.files = {"a": (0, 4)}
        slot.content("a")[:] = step.to_bytes(4, "little")
        slot.stamp = Stamp(step=step, attempt=1, world=2)
        if step > 1:
            before = memory.find(Stamp(step=step - 1, attempt=1, world=2))
            assert before and bytes(before.content("a")) == (step - 1).to_bytes(4, "little")
    # One that was being written when its rank died is written again.
    interrupted = memory.next_slot(1, None)
    memory.slots[interrupted].stamp = None
    assert memory.next_slot(1, None) == interrupted
    memory.close()


@pytest.mark.parametrize(
    ("stamps", "loaded", "index"),
    [
        # By step and attempt; the third start of the gang writes.
        ([(7, 1), (6, 1)], (6, 1), 0),  # not all nodes had the later one
        ([(5, 1), (6, 1)], (6, 1), 0),
        ([(6, 2), (6, 1)], (6, 1), 0),  # the second start was lost before all had its first
        ([(6, 1), (6, 3)], (6, 1), 0),
        ([(6, 3), (7, 1)], (6, 1), 1),  # sent late
        ([(7, 3), (6, 3)], (6, 1), 1),
        ([(6, 1), None], (6, 1), 1),
        ([(6, 1), (5, 1)], None, 1),  # storage had a newer state
    ],
)
def test_what_was_loaded_is_kept_until_its_first_snapshot_is_whole(
    stamps: list[tuple[int, int] | None], loaded: tuple[int, int] | None, index: int
) -> None:
    def stamp(one: tuple[int, int] | None) -> Stamp | None:
        return Stamp(step=one[0], attempt=one[1], world=2) if one else None

    memory = RankMemory.of_size(4096)
    for slot, one in zip(memory.slots, stamps, strict=True):
        slot.stamp = stamp(one)
    assert memory.next_slot(3, stamp(loaded)) == index
    memory.close()


def send(
    keeper: Keeper, step: int, attempt: int, content: bytes, size: int = 4096
) -> socket.socket:
    """Begin to store a snapshot of rank 1 of four bytes, as the keeper of the node before does."""
    connection = wire.dial(keeper.address, keeper.token, 60)
    stamp = {"step": step, "attempt": attempt, "world": 2}
    about = {"rank": 1, "bytes": size, "stamp": stamp, "loaded": None, "files": {"a": [0, 4]}}
    wire.send(connection, {"kind": "store"} | about, memoryview(content))
    return connection


def send_half(keeper: Keeper, step: int) -> tuple[socket.socket, Callable[[], object]]:
    """Stop in the middle of a snapshot; return the connection, and a reference to the memory it fills."""
    connection = send(keeper, step, 1, b"ha")

    def filled() -> list[Callable[[], object]]:
        slots = [slot for memory in keeper._copies.values() for slot in memory.slots]
        return [weakref.ref(slot.memory) for slot in slots if slot.sender]

    [memory] = until(filled, "a part on its way", 60)
    return connection, memory


def store(keeper: Keeper, step: int, attempt: int, content: bytes, size: int = 4096) -> None:
    """Store a snapshot of rank 1 of four bytes."""
    with send(keeper, step, attempt, content, size) as connection:
        assert wire.receive(connection) == {"stored": step}


def test_a_transfer_that_stops_in_the_middle_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "_GIVE_UP_S", 0.1)
    keeper = Keeper(tmp_path, 0, 2, "127.0.0.1")
    with send(keeper, 6, 1, b"ha") as connection, pytest.raises(wire.Unreachable):
        wire.receive(connection)
    [memory] = keeper._copies.values()
    assert not any(slot.sender or slot.stamp for slot in memory.slots)


@pytest.mark.parametrize("size", [4096, 8192])
def test_memory_of_a_stopped_transfer_is_free_once_another_takes_its_place(
    tmp_path: Path, size: int
) -> None:
    keeper = Keeper(tmp_path, 0, 2, "127.0.0.1")
    store(keeper, 5, 1, b"all5")
    connection, memory = send_half(keeper, 6)
    with connection:
        store(keeper, 6, 1, b"all6", size)
        until(lambda: memory() is None, "the memory of the stopped transfer", 20)
    assert keeper.slot_of(1, {"step": 6, "attempt": 1, "world": 2})


def test_what_an_ended_start_still_sends_replaces_nothing(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, 0, 2, "127.0.0.1")

    def found() -> dict[tuple[int, int], bytes]:
        parts = [part for part in keeper.parts() if part.rank == 1]
        slots = {part.stamp: keeper.slot_of(1, vars(part.stamp)) for part in parts}
        return {(s.step, s.attempt): bytes(slot.content("a")) for s, slot in slots.items() if slot}

    store(keeper, 6, 1, b"old6")
    late, _ = send_half(keeper, 7)
    store(keeper, 6, 2, b"new6")
    with late, pytest.raises(OSError):
        late.sendall(b"lf")
        wire.receive(late)
    assert found()[6, 2] == b"new6"
    store(keeper, 7, 2, b"new7")
    with send(keeper, 8, 1, b"old8") as refused, pytest.raises(OSError):
        wire.receive(refused)
    assert found() == {(6, 2): b"new6", (7, 2): b"new7"}
    store(keeper, 7, 2, b"new7")  # once more: its answer was lost
    assert found() == {(6, 2): b"new6", (7, 2): b"new7"}


def test_a_snapshot_contains_the_steps_that_were_loaded(tmp_path: Path) -> None:
    def file(step: int) -> MetricsLog:
        return MetricsLog(tmp_path / "metrics.jsonl", step, enabled=True)

    values = dict.fromkeys((one.name for one in dataclasses.fields(StepMetrics)), 1)
    first = RecentSteps(file(0), b"", 0, hold=False)
    for step in (1, 2, 3):
        first.append(StepMetrics(**values | {"step": step}))
    second = RecentSteps(file(2), first.to_json(), 2, hold=False)
    assert [one["step"] for one in json.loads(second.to_json())] == [1, 2]


def test_elastic_runs_keep_their_state_in_their_groups(tmp_path: Path) -> None:
    groups = {"groups": {"min": 1, "max": 2}}
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, nodes=2, parallelism={}, overrides=TRAINER_CONFIG | SETTINGS | groups)
    assert "training/runs/llama.yaml: config: peer_memory.every_steps: conflict" in codes(
        caught.value
    )
