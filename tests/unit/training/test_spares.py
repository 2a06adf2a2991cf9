"""When a spare pays."""

from __future__ import annotations

import random

import pytest

from training.spot.spares import TAKE_OVER_S, Losses, Outlook, best, outlooks, replayed

RARE = Losses(per_unit_hour=0.01, replaced_after_h=0.1)
OFTEN = Losses(per_unit_hour=0.2, replaced_after_h=0.25)


def played(units: int, spares: int, losses: Losses, *, elastic: bool) -> tuple[float, float]:
    """Shares of useful and paid units, by a simulation of each unit in small ticks."""
    chance, tick = random.Random(5), 0.01
    there, back = [True] * (units + spares), [0.0] * (units + spares)
    useful = paid = 0.0
    ticks = 60_000
    for number in range(ticks):
        now = number * tick
        for i, is_there in enumerate(there):
            if is_there and chance.random() < losses.per_unit_hour * tick:
                there[i], back[i] = False, now + losses.replaced_after_h
            elif not is_there and now >= back[i]:
                there[i] = True
        held = sum(there)
        useful += min(units, held) if elastic else units * (held >= units)
        paid += held
    return useful / ticks / units, useful / paid


@pytest.mark.parametrize("elastic", [False, True])
@pytest.mark.parametrize("spares", [0, 2])
def test_the_outlook_is_what_a_simulation_finds(spares: int, elastic: bool) -> None:
    found = list(outlooks(8, OFTEN, elastic=elastic))[spares]
    useful, per_paid = played(8, spares, OFTEN, elastic=elastic)
    stalled = 1 - 8 * OFTEN.per_unit_hour * TAKE_OVER_S / 3600
    assert found.useful == pytest.approx(useful * stalled, abs=0.02)
    assert found.per_paid == pytest.approx(per_paid * stalled, abs=0.02)


def test_a_gang_that_is_often_hit_pays_for_spares_and_a_small_or_elastic_one_does_not() -> None:
    def spares(units: int, losses: Losses, *, elastic: bool) -> int:
        return best(list(outlooks(units, losses, elastic=elastic))).spares

    assert spares(8, OFTEN, elastic=False) >= 1
    assert spares(1, RARE, elastic=False) == 0
    assert spares(8, RARE, elastic=False) == 0
    assert spares(8, OFTEN, elastic=True) == 0  # the others train meanwhile


def test_a_gain_within_the_error_of_the_rates_is_no_reason() -> None:
    rows = [Outlook(spares=k, useful=1.0, per_paid=v) for k, v in enumerate((0.900, 0.903, 0.8))]
    assert best(rows).spares == 0
    assert best([*rows, Outlook(spares=3, useful=1.0, per_paid=0.95)]).spares == 3


def test_recorded_losses_of_single_nodes_make_a_spare_pay() -> None:
    # Every tick one of 9 nodes goes, and another comes before the next one.
    counts = [9.0, 8.0] * 200
    without, one = replayed(counts, 600, 8, 300, elastic=False)[:2]
    # Half of the ticks lose each of 8 nodes with 1/9: one at least with 61 %.
    assert without.useful == pytest.approx(1 - 0.5 * (1 - (8 / 9) ** 8) * 0.5, abs=0.01)
    assert one.useful > without.useful + 0.05
    assert best([without, one]).spares == 1
    elastic = replayed(counts, 600, 8, 300, elastic=True)
    assert best(elastic).spares == 0


def test_spares_do_not_help_where_there_is_no_capacity() -> None:
    without, one = replayed([4.0, 4.0, 0.0, 0.0, 4.0, 4.0], 600, 3, 300, elastic=False)
    assert (
        without.useful == pytest.approx(one.useful, abs=0.01) and best([without, one]).spares == 0
    )
    assert replayed([3.0, 2.0, 3.0], 600, 3, 300, elastic=False) == []
    assert replayed([], 600, 3, 300, elastic=True) == []
