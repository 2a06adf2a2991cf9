"""What a spare brings."""

from __future__ import annotations

import random

import pytest

from training.spot.spares import TAKE_OVER_S, Losses, outlooks, replayed

RARE = Losses(per_group_hour=0.01, replaced_after_h=0.1)
OFTEN = Losses(per_group_hour=0.2, replaced_after_h=0.25)


def played(groups: int, spares: int, losses: Losses) -> tuple[float, float]:
    """Shares of useful and paid groups, by a simulation of each group in small ticks."""
    chance, tick = random.Random(5), 0.01
    there, back = [True] * (groups + spares), [0.0] * (groups + spares)
    useful = paid = 0.0
    ticks = 60_000
    for number in range(ticks):
        now = number * tick
        for i, is_there in enumerate(there):
            if is_there and chance.random() < losses.per_group_hour * tick:
                there[i], back[i] = False, now + losses.replaced_after_h
            elif not is_there and now >= back[i]:
                there[i] = True
        held = sum(there)
        useful += min(groups, held)
        paid += held
    return useful / ticks / groups, useful / paid


@pytest.mark.parametrize("spares", [0, 2])
def test_the_outlook_is_what_a_simulation_finds(spares: int) -> None:
    found = list(outlooks(8, OFTEN))[spares]
    useful, per_paid = played(8, spares, OFTEN)
    stalled = 1 - 8 * OFTEN.per_group_hour * TAKE_OVER_S / 3600
    assert found.useful == pytest.approx(useful * stalled, abs=0.02)
    assert found.per_paid == pytest.approx(per_paid * stalled, abs=0.02)


@pytest.mark.parametrize("losses", [RARE, OFTEN])
def test_a_spare_brings_more_work_per_hour_for_less_per_usd(losses: Losses) -> None:
    without, one = list(outlooks(8, losses))[:2]
    assert one.useful > without.useful and one.per_paid < without.per_paid


def test_a_spare_shortens_a_run_on_recorded_losses_and_costs_more_than_that() -> None:
    # Every second tick each group is lost with one half, and another comes before the next one.
    without, one = replayed([4.0, 2.0] * 200, 600, 2, 600)[:2]
    assert without.useful == pytest.approx(1 - 0.5 * 0.5, abs=0.01)
    # Of three groups less than two are left with one half: one with 3/8, none with 1/8.
    assert one.useful == pytest.approx(1 - 0.5 * (3 / 8 * 1 / 2 + 1 / 8), abs=0.01)
    assert one.per_paid < without.per_paid


def test_spares_do_not_help_where_there_is_no_capacity() -> None:
    without, one = replayed([4.0, 4.0, 0.0, 0.0, 4.0, 4.0], 600, 3, 300)
    assert without.useful == pytest.approx(one.useful, abs=0.01)
    assert replayed([3.0, 2.0, 3.0], 600, 3, 300) == []
    assert replayed([], 600, 3, 300) == []
