"""The checksum over replicas: every flipped bit counts, and the majority names the wrong one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from trainyard.culprits import CORRUPT, NO_RANK, Verdicts, parse_line
from trainyard.tensors.replicas import Replica, ReplicasDiffer, checksum, require_same


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.uint8])
@pytest.mark.parametrize("size", [1, 7, 64])
def test_every_flipped_bit_changes_the_checksum(dtype: torch.dtype, size: int) -> None:
    tensor = torch.arange(size).to(dtype)
    before, raw = checksum([tensor]), tensor.view(torch.uint8)
    for byte in {0, len(raw) // 2, len(raw) - 1}:
        for bit in range(8):
            raw[byte] ^= 1 << bit
            assert checksum([tensor]) != before
            raw[byte] ^= 1 << bit
    assert checksum([tensor]) == before


def test_a_part_of_a_larger_tensor_has_the_checksum_of_a_copy() -> None:
    part = torch.randn(9)[1:]
    assert checksum([part, "text", 3]) == checksum([part.clone()])


def replicas(*sums: str) -> list[Replica]:
    return [Replica(rank, text, f"node-{rank}", f"pod-{rank}") for rank, text in enumerate(sums)]


def test_replicas_that_agree_say_nothing(tmp_path: Path) -> None:
    require_same(replicas("a", "a"), 5, tmp_path, 1)
    assert list(tmp_path.iterdir()) == []


def test_those_that_differ_from_the_majority_are_named_once_with_their_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "events.jsonl").touch()  # the run reports
    found = replicas("a", "b", "a", "c", "a")
    for _ in found:  # each rank calls it
        with pytest.raises(ReplicasDiffer, match="step 5: rank 1 on node-1, rank 3 on node-3 diff"):
            require_same(found, 5, tmp_path, 2)
    named = sorted(Verdicts(tmp_path).all(), key=lambda one: one.rank)
    assert [(one.symptom, one.rank, one.node, one.pod, one.attempt) for one in named] == [
        (CORRUPT, 1, "node-1", "pod-1", 2),
        (CORRUPT, 3, "node-3", "pod-3", 2),
    ]
    lines = capsys.readouterr().err.splitlines()
    assert [one.rank for line in lines if (one := parse_line(line))] == [1, 3]
    events = (tmp_path / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["rank"] for line in events] == [1, 3]


@pytest.mark.parametrize("sums", [("a", "b"), ("a", "a", "b", "b"), ("a", "b", "c")])
def test_without_a_majority_none_is_named_and_all_are_listed(
    sums: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(ReplicasDiffer, match="nothing is saved"):
        require_same(replicas(*sums), 5, tmp_path, 1)
    (one,) = Verdicts(tmp_path).all()
    assert (one.symptom, one.rank, one.node) == (CORRUPT, NO_RANK, "")
    assert all(f"rank {rank} on node-{rank}" in one.what for rank in range(len(sums)))


def test_a_replica_keeps_its_place_on_the_way() -> None:
    own = Replica.of({"model": {"weight": torch.ones(3)}}, 4)
    assert Replica.from_json(own.to_json().ljust(512)) == own
    assert replace(own, rank=0).checksum == checksum([torch.ones(3)])
