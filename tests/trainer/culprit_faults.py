"""Faults of one rank that its gang suffers from: what is broken in which rank, from a step on."""

from __future__ import annotations

import os
import random
import signal
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.ranks import Hook
from trainyard import culprits

HANGS = ("loader", "forward", "backward", "optimizer", "stopped", "interpreter")
SKIPS = ("agree", "gradients")
INSIDE = "inside"
"""Of a skip: a collective inside of a group of an elastic run."""
SLOW = ("work", "loader")
FLIPS = ("gradient", "parameter", "optimizer")
_FOREVER_S = 3600.0
SLOWER = 0.3
"""A slow rank works 1.3 times as long as the others."""


@dataclass(frozen=True)
class Fault:
    """One fault."""

    kind: str
    """`hang`, `skip`, `slow` or `flip`."""
    place: str
    rank: int
    step: int
    bit: int = 0
    """Of a flip: which bit of a float32, 0 for the lowest."""
    spot: float = 0.0
    """Of a flip: where among all numbers, from 0 to 1."""
    again: bool = False
    """Of a flip: whether it happens each time that this step is computed."""

    @property
    def symptom(self) -> str:
        """What the rank must be named for."""
        if self.kind == "slow":
            return culprits.SLOW_LOADER if self.place == "loader" else culprits.SLOW_RANK
        others = {"hang": culprits.HUNG, "skip": culprits.MISMATCHED, "flip": culprits.CORRUPT}
        return others[self.kind]

    def hook(self, armed: Path | None = None) -> Hook:
        """Return what breaks the rank, in its process: at the fault's step, or once this file exists."""

        def hook(rank: int) -> None:
            if rank == self.rank:
                due = armed.exists if armed else _from_step(self.step)
                _BREAKS[self.kind](self, due)

        return hook


def draw(chance: random.Random, kind: str, world: int, lowest_bit: int = 0) -> Fault:
    """Return a random fault of a kind; of a flip no bit below `lowest_bit`."""
    place = chance.choice(PLACES[kind])
    return Fault(
        kind,
        place,
        chance.randrange(world),
        chance.randrange(6, 20),
        bit=chance.randrange(lowest_bit, 32),
        spot=chance.random(),
    )


PLACES = {"hang": HANGS, "skip": SKIPS, "slow": SLOW, "flip": FLIPS}


def _current_step() -> Callable[[], int]:
    """Return a function that tells which step the loop is in."""
    from training.trainer import loop

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
    from training.trainer.flight.recorder import Recorder

    now, first, plain = 0, -1, Recorder.enter

    def enter(self: Recorder, phase: int, step: int | None = None) -> None:
        nonlocal now
        plain(self, phase, step)
        now = self.step

    pytest.MonkeyPatch().setattr(Recorder, "enter", enter)

    def in_that_step() -> bool:
        nonlocal first
        if first < 0 and due():
            first = now
        return now == first

    return in_that_step


def _before(owner: Any, name: str, action: Callable[[], None]) -> None:
    """Have something done before each call of a function."""
    plain = getattr(owner, name)

    def patched(*arguments: Any, **named: Any) -> Any:
        action()
        return plain(*arguments, **named)

    pytest.MonkeyPatch().setattr(owner, name, patched)


def _hang(fault: Fault, due: Callable[[], bool]) -> None:
    first_time = _once(due)

    def once() -> None:
        if first_time():
            _stand_still(fault.place)

    owner, name = _places()[fault.place]
    if fault.place == "backward":
        _in_backward(once)
    else:
        _before(owner, name, once)


def hang_before_a_save(armed: Path, saved_every: int) -> Hook:
    """Return what lets a rank hang, once this file exists, in the update of a step whose state is saved.

    The other groups of an elastic run then wait where they compare their states, not in the next step.
    """

    def hook(_: int) -> None:
        from training.trainer.flight.recorder import Recorder
        from training.trainer.flight.ring import Phase

        plain = Recorder.enter

        def enter(self: Recorder, phase: int, step: int | None = None) -> None:
            plain(self, phase, step)
            if phase == Phase.UPDATE and self.step % saved_every == 0 and armed.exists():
                _stand_still("optimizer")

        pytest.MonkeyPatch().setattr(Recorder, "enter", enter)

    return hook


def _places() -> dict[str, tuple[Any, str]]:
    from training.trainer import eager
    from training.trainer.data.prefetch import PrefetchLoader
    from training.trainer.parallel.passes import FullModelPasses

    passes = (FullModelPasses, "forward_backward")
    return {
        "loader": (PrefetchLoader, "take"),
        "optimizer": (eager.AdamW, "step"),
        **dict.fromkeys(("forward", "backward", "stopped", "interpreter", "work"), passes),
    }


def _stand_still(place: str) -> None:
    if place == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif place == "interpreter":
        sum(range(10**15))  # never gives the interpreter's lock away
    time.sleep(_FOREVER_S)


def _in_backward(action: Callable[[], None]) -> None:
    """Have something done when the gradient of a parameter in the middle of the model is there."""
    from training.trainer.parallel import build

    plain = build.build_network

    def built(*arguments: Any) -> Any:
        network = plain(*arguments)
        parameters = list(network.unwrapped.parameters())
        middle: Any = parameters[len(parameters) // 2]
        middle.register_post_accumulate_grad_hook(lambda _: action())
        return network

    for module in list(sys.modules.values()):  # those that imported the function by its name, too
        if getattr(module, "__dict__", {}).get("build_network") is plain:
            pytest.MonkeyPatch().setattr(module, "build_network", built)


def _skip(fault: Fault, due: Callable[[], bool]) -> None:
    from training.trainer import loop
    from training.trainer.parallel.world import World

    if fault.place == INSIDE:
        _skip_inside(_once(due))
        return
    step = _current_step()
    if fault.place == "agree":
        plain = World.sum

        def summed(world: World, values: list[float]) -> list[float]:
            return list(values) if step() == fault.step else plain(world, values)

        pytest.MonkeyPatch().setattr(World, "sum", summed)
        return
    plain_passes = loop.compute

    def alone(*arguments: Any) -> Any:
        if step() != fault.step:
            return plain_passes(*arguments)
        with arguments[0].network.module.no_sync():
            return plain_passes(*arguments)

    pytest.MonkeyPatch().setattr(loop, "compute", alone)


def _skip_inside(first_time: Callable[[], bool]) -> None:
    """Leave out the sum of the losses, once, in the update of a step of an elastic run."""
    from training.trainer import loop
    from training.trainer.parallel.world import World

    plain, plain_step, in_step = World.sum, loop.agree, False

    def summed(world: World, values: list[float]) -> list[float]:
        return list(values) if in_step and first_time() else plain(world, values)

    def step(*arguments: Any) -> Any:
        nonlocal in_step
        in_step = True
        try:
            return plain_step(*arguments)
        finally:
            in_step = False

    pytest.MonkeyPatch().setattr(World, "sum", summed)
    pytest.MonkeyPatch().setattr(loop, "agree", step)


def _slow(fault: Fault, due: Callable[[], bool]) -> None:
    from training.trainer.flight.recorder import Recorder, StepTimes

    worked = list[float]()
    plain = Recorder.add_step

    def noted(recorder: Recorder, times: StepTimes) -> None:
        if not due():
            worked.append(times.worked)
        plain(recorder, times)

    pytest.MonkeyPatch().setattr(Recorder, "add_step", noted)

    def delay() -> None:
        if due():
            time.sleep(SLOWER * statistics.median(worked[1:]))

    owner, name = _places()[fault.place]
    _before(owner, name, delay)


def _flip(fault: Fault, due: Callable[[], bool]) -> None:
    """Flip one bit before the optimizer's step: of a gradient, a parameter or a moment."""
    from training.trainer import eager
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


_BREAKS: dict[str, Callable[[Fault, Callable[[], bool]], None]] = {
    "hang": _hang,
    "skip": _skip,
    "slow": _slow,
    "flip": _flip,
}
