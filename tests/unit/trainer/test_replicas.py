"""Replicas of the model: checksums that notice one bit, and who was right when two replicas differ."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest
import torch
from torch.distributed import HashStore  # type: ignore[attr-defined]

from training.trainer.config.parallel import Layout
from training.trainer.parallel.world import World
from training.trainer.replicas.checksum import BLOCK, block_checksums, checksum, checksums, summary
from training.trainer.replicas.comparison import Replicas, ReplicasDiffer
from training.trainer.replicas.disputes import (
    REPEATS_MAX,
    Dispute,
    DisputeFile,
    Element,
    Place,
    farthest,
    implausible,
    read_values,
    usual_size,
)
from training.trainer.replicas.peers import gang_peers
from trainyard.culprits import NO_RANK, Culprit

ELEMENT = Element(group="model", tensor="w", index=3, usual=0.02, values=(0.01, 0.03))
DISPUTE = Dispute(
    step=40,
    attempt=2,
    layout={"replicate": 2},
    rank=0,
    places=(Place(rank=0, node="n0", pod="p0"), Place(rank=1, node="n1", pod="p1")),
    elements=(ELEMENT,),
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("size", [1, 2, 7, 8, 1001])
def test_every_flipped_bit_changes_the_checksum(dtype: torch.dtype, size: int) -> None:
    chance = random.Random(size)
    tensor = torch.arange(1, size + 1).to(dtype)
    before = int(checksum(tensor))
    raw = tensor.view(torch.uint8)
    for _ in range(64):
        byte, bit = chance.randrange(raw.numel()), 1 << chance.randrange(8)
        raw[byte] ^= bit
        assert int(checksum(tensor)) != before
        raw[byte] ^= bit
    assert int(checksum(tensor)) == before


def test_a_part_of_a_larger_tensor_has_the_checksum_of_a_copy() -> None:
    whole = torch.randn(1001)
    for begin, end in ((1, 9), (2, 10), (3, 8)):
        part = whole[begin:end]
        assert int(checksum(part)) == int(checksum(part.clone()))


def test_the_summary_tells_which_tensor_differs_apart() -> None:
    first, second = torch.ones(4), torch.zeros(4)
    assert summary(checksums([first, second])) != summary(checksums([second, first]))
    assert checksums([]).numel() == 0


def test_a_difference_is_found_in_its_block() -> None:
    tensor = torch.randn(2 * BLOCK + 5)
    before = block_checksums(tensor)
    assert len(before) == 3
    tensor[BLOCK + 7] += 1
    assert (block_checksums(tensor) != before).tolist() == [False, True, False]
    tensor[2 * BLOCK + 4] += 1
    assert (block_checksums(tensor) != before).tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ((0.01, 1e20), 1),
        ((float("nan"), 0.01), 0),
        ((float("inf"), 0.01), 0),
        ((0.01, 0.03), None),
        ((1e20, 1e21), None),
    ],
)
def test_a_value_of_another_magnitude_than_its_neighbours_is_wrong(
    values: tuple[float, ...], wrong: int | None
) -> None:
    assert implausible([replace(ELEMENT, values=values)]) == wrong


def test_values_that_contradict_each_other_decide_nothing() -> None:
    both = [replace(ELEMENT, values=(0.01, 1e20)), replace(ELEMENT, values=(1e20, 0.01))]
    assert implausible(both) is None


@pytest.mark.parametrize(("again", "wrong"), [(0.011, 1), (0.029, 0), (0.02, None)])
def test_the_value_that_is_farther_from_the_one_computed_again_was_wrong(
    again: float, wrong: int | None
) -> None:
    assert farthest(DISPUTE, [again]) == wrong


def test_a_clear_difference_counts_more_than_a_doubtful_one() -> None:
    doubtful = replace(ELEMENT, values=(0.0101, 0.0099))
    clear = replace(ELEMENT, values=(0.01, 0.5))
    assert farthest(replace(DISPUTE, elements=(doubtful, clear)), [0.00999, 0.011]) == 1


def test_numbers_are_read_where_they_were() -> None:
    tensor = torch.arange(6.0).reshape(2, 3)
    assert read_values({"model": {"w": tensor}}, [ELEMENT]) == [3.0]
    assert read_values({"model": {}}, [ELEMENT]) is None
    assert read_values({"model": {"w": tensor[:1]}}, [ELEMENT]) is None


def test_the_usual_size_is_not_that_of_the_flipped_value() -> None:
    tensor = torch.full((4096,), 0.02)
    tensor[7], tensor[9] = 1e30, float("nan")
    assert usual_size(tensor) == pytest.approx(0.02)


def test_a_dispute_is_kept_until_it_is_settled(tmp_path: Path) -> None:
    file = DisputeFile(tmp_path)
    assert file.read() is None
    file.write(DISPUTE)
    assert DisputeFile(tmp_path).read() == DISPUTE
    file.close()
    assert file.read() is None
    file.close()


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"step": 1, "places": 3})])
def test_an_unreadable_dispute_is_none(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "flight"
    folder.mkdir()
    (folder / "dispute.json").write_text(text)
    assert DisputeFile(tmp_path).read() is None


def test_only_ranks_that_hold_the_same_part_of_the_model_are_compared(tmp_path: Path) -> None:
    def replicas(**sizes: int) -> Replicas | None:
        layout = Layout(**({"pipeline": 1, "replicate": 1, "shard": 1, "tensor": 1} | sizes))
        world = World(
            rank=0,
            size=layout.world,
            layout=layout,
            device=torch.device("cpu"),
            store=HashStore(),
        )
        return Replicas.of_run(world, tmp_path, dict, 100, lambda *_: None, 1)

    assert replicas(shard=4) is None
    alike = replicas(pipeline=2, replicate=2, shard=2)
    assert alike is not None
    assert alike.peers.alike == ((0, 2), (1, 3), (4, 6), (5, 7))


STEP = 40
RIGHT, WRONG, CONTAMINATED = 0.01, 0.03, 0.0101
"""A number of the model: right, with a flipped bit, and after wrong gradients of the other replica."""


class Gang:
    """Attempts of a gang whose ranks are threads; each has one number that is compared."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.named: list[Culprit] = []
        self.attempts = 0

    def compare(self, *values: float, step: int = STEP, witnessed: bool = True) -> list[str]:
        """Compare what the ranks of a new attempt have after a step; return their errors."""
        self.attempts += 1
        met, passed = Barrier(len(values)), [b""] * len(values)

        def gather(rank: int, content: bytes) -> list[bytes]:
            passed[rank] = content
            met.wait(60)
            found = list(passed)
            met.wait(60)
            return found

        def work(rank: int) -> str:
            replicas = self._replicas(rank, values, lambda content: gather(rank, content))
            replicas.witnessed = witnessed
            try:
                replicas.compare(step)
            except ReplicasDiffer as error:
                assert error.final == ("The run ends" in str(error))
                return str(error)
            return ""

        with ThreadPoolExecutor(len(values)) as pool:
            return list(pool.map(work, range(len(values))))

    def _replicas(
        self, rank: int, values: Sequence[float], gather: Callable[[bytes], list[bytes]]
    ) -> Replicas:
        layout = Layout(pipeline=1, replicate=len(values), shard=1, tensor=1)
        world = World(
            rank=rank,
            size=len(values),
            layout=layout,
            device=torch.device("cpu"),
            store=HashStore(),
        )
        weights = torch.full((64,), 0.02)
        weights[7] = values[rank]
        tensors = {"model": {"w": weights}, "optimizer": {}}
        found = Replicas.of_run(
            world,
            self.run_dir,
            lambda: tensors,
            100,
            lambda _, culprit: self.named.append(culprit),
            self.attempts,
        )
        assert found is not None
        found.peers = replace(gang_peers(world), gather=gather)
        return found

    def ranks_named(self) -> list[int]:
        return [one.rank for one in self.named]


def test_of_two_replicas_the_wrong_one_is_named_once_both_agree_again(tmp_path: Path) -> None:
    gang = Gang(tmp_path)
    assert all("will show which was right" in error for error in gang.compare(WRONG, CONTAMINATED))
    assert gang.compare(RIGHT, RIGHT) == ["", ""]
    assert gang.ranks_named() == [0]
    assert gang.compare(RIGHT, RIGHT) == ["", ""] and gang.ranks_named() == [0]


def test_none_of_two_replicas_is_named_that_differ_each_time(tmp_path: Path) -> None:
    gang = Gang(tmp_path)
    outcomes = [gang.compare(WRONG, CONTAMINATED) for _ in range(1 + REPEATS_MAX)]
    assert ["The run ends" in one for one, _ in outcomes] == [False] * REPEATS_MAX + [True]
    assert gang.ranks_named() == [NO_RANK] * REPEATS_MAX
    assert gang.named[-1].node == "" and f"{REPEATS_MAX} times" in gang.named[-1].what
    assert gang.compare(RIGHT, RIGHT) == ["", ""]
    assert gang.ranks_named()[REPEATS_MAX:] == [0]


def test_of_three_replicas_the_one_that_differs_each_time_is_named(tmp_path: Path) -> None:
    gang = Gang(tmp_path)
    for _ in range(1 + REPEATS_MAX):
        gang.compare(WRONG, CONTAMINATED, CONTAMINATED)
    assert gang.ranks_named() == [0] * (1 + REPEATS_MAX)


def test_a_difference_before_the_disputed_step_counts_as_the_same_fault(tmp_path: Path) -> None:
    gang = Gang(tmp_path)
    steps = [STEP, STEP - 10, STEP - 10, STEP - 10]
    outcomes = [gang.compare(WRONG, CONTAMINATED, step=step) for step in steps]
    assert ["The run ends" in one for one, _ in outcomes] == [False, False, False, True]


def test_a_later_difference_is_another_one(tmp_path: Path) -> None:
    gang = Gang(tmp_path)
    for step in range(STEP, STEP + 10):
        assert "The run ends" not in gang.compare(WRONG, CONTAMINATED, step=step)[0]
    assert gang.named == []


def test_none_is_named_where_one_group_alone_has_computed_the_steps_again(tmp_path: Path) -> None:
    gang = Gang(tmp_path)
    gang.compare(WRONG, CONTAMINATED)
    assert gang.compare(WRONG, WRONG, witnessed=False) == ["", ""]
    assert gang.ranks_named() == [NO_RANK]
    assert [f"rank {rank} is on" in str(gang.named[0].evidence) for rank in (0, 1)] == [True, True]


def test_a_disputed_step_is_compared_again_though_no_comparison_is_scheduled(
    tmp_path: Path,
) -> None:
    gang = Gang(tmp_path)
    gang.compare(WRONG, CONTAMINATED)
    first = gang._replicas(0, (RIGHT, RIGHT), lambda content: [content, content])
    assert first.is_due(100) and first.is_due(STEP) and not first.is_due(STEP + 1)
