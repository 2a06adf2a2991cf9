"""Faults of one rank that its gang suffers from: what is broken in which rank, from a step on."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.ranks import Hook

FLIPS = ("gradient", "parameter", "optimizer")


@dataclass(frozen=True)
class Fault:
    """One fault."""

    place: str
    rank: int
    step: int
    bit: int = 0
    """Of a flip: which bit of a float32, 0 for the lowest."""
    spot: float = 0.0
    """Of a flip: where among all numbers, from 0 to 1."""
    again: bool = False
    """Of a flip: whether it happens each time that this step is computed."""

    def hook(self, armed: Path | None = None) -> Hook:
        """Return what breaks the rank, in its process: at the fault's step, or once this file exists."""

        def hook(rank: int) -> None:
            if rank == self.rank:
                due = armed.exists if armed else _from_step(self.step)
                _flip(self, due)

        return hook


def draw(chance: random.Random, world: int, lowest_bit: int = 0) -> Fault:
    """Return a random flip of no bit below `lowest_bit`."""
    return Fault(
        chance.choice(FLIPS),
        chance.randrange(world),
        chance.randrange(6, 20),
        bit=chance.randrange(lowest_bit, 32),
        spot=chance.random(),
    )


def _current_step() -> Callable[[], int]:
    """Return a function that tells which step the loop is in."""
    from trainer import loop

    step, plain = 0, loop.train_step

    def counted(run: Any) -> Any:
        nonlocal step
        step = run.progress.step + 1
        return plain(run)

    pytest.MonkeyPatch().setattr(loop, "train_step", counted)
    return lambda: step


def _from_step(first: int) -> Callable[[], bool]:
    step = _current_step()
    return lambda: step() >= first


def _once(due: Callable[[], bool]) -> Callable[[], bool]:
    """Return a condition that holds the first time only."""
    fired = False

    def first_time() -> bool:
        nonlocal fired
        if fired or not due():
            return False
        fired = True
        return True

    return first_time


def _at_one_step(due: Callable[[], bool]) -> Callable[[], bool]:
    """Return a condition that holds in the step in which it held first, each time that it is computed."""
    step, first = _current_step(), -1

    def in_that_step() -> bool:
        nonlocal first
        if first < 0 and due():
            first = step()
        return step() == first

    return in_that_step


def _flip(fault: Fault, due: Callable[[], bool]) -> None:
    """Flip one bit before the optimizer's step: of a gradient, a parameter or a moment."""
    from trainer import eager
    from trainyard.tensors import local_tensors

    happens = _at_one_step(due) if fault.again else _once(due)
    plain = eager.AdamW.step

    def flipped(optimizer: Any, closure: Any = None) -> Any:
        if happens():
            known = [p for group in optimizer.param_groups for p in group["params"]]
            local = local_tensors.local_data
            tensors = {
                "gradient": lambda p: p.grad,
                "parameter": lambda p: p.data,
                "optimizer": lambda p: optimizer.state[p][
                    "exp_avg" if fault.bit % 2 else "exp_avg_sq"
                ],
            }
            _flip_bit([local(tensors[fault.place](p)) for p in known], fault)
        return plain(optimizer, closure)

    pytest.MonkeyPatch().setattr(eager.AdamW, "step", flipped)


def _flip_bit(tensors: list[Any], fault: Fault) -> None:
    number = int(fault.spot * sum(one.numel() for one in tensors))
    for one in tensors:
        if number < one.numel():
            words = one.reshape(-1).view(torch.int32)
            words[number] ^= 1 << fault.bit if fault.bit < 31 else -(2**31)
            return
        number -= one.numel()
