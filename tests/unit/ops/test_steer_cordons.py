"""Nodes that `spot steer` cordons, because runs have named ranks on them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from infra.domain import naming
from ops.objects import Json
from ops.steer import cordon
from ops.steer.cordon import PAUSE_S, REMEMBERED_S, SLOW_S, Named, Record, allowed

NOW = 1_800_000_000.0
RUN = ("team-research", "hello-v1-aaaaaaaa")
OTHER = ("team-research", "big-v1-bbbbbbbb")


def verdict(symptom: str = "corrupt-rank", *, at: float = NOW, **changes: Any) -> Named:
    made = Named(run=RUN, symptom=symptom, rank="3", node="n1", time=at)
    return replace(made, **changes)


def suspects(*looks: tuple[float, dict[Any, set[str]], list[Named]]) -> dict[str, str]:
    record = Record()
    for after, held, found in looks:
        record.look(held, found, NOW + after)
    return record.suspects(NOW + looks[-1][0])


def test_a_node_that_computed_wrong_values_is_cordoned_at_once() -> None:
    found = suspects((0, {RUN: {"n1"}}, [verdict()]))
    assert found == {"n1": f"rank 3 of {RUN[1]} computed wrong values"}


def test_a_run_cannot_name_a_node_that_it_was_not_on() -> None:
    assert suspects((0, {RUN: {"n2"}, OTHER: {"n1"}}, [verdict()])) == {}


def test_a_gang_that_has_restarted_elsewhere_still_names_its_former_node() -> None:
    assert suspects((0, {RUN: {"n1"}}, []), (60, {RUN: {"n2"}}, [verdict(at=NOW + 50)]))
    late = REMEMBERED_S + 60
    assert not suspects((0, {RUN: {"n1"}}, []), (late, {}, [verdict(at=NOW + late)]))


def test_the_first_hang_may_be_the_programs() -> None:
    here = {RUN: {"n1"}, OTHER: {"n1"}}
    first = verdict("hung")
    assert suspects((0, here, [first]), (60, here, [first])) == {}
    again = verdict("hung", at=NOW + 300)
    assert suspects((0, here, [first]), (300, here, [again])) == {
        "n1": "2 hangs of ranks on it within an hour"
    }
    assert "n1" in suspects((0, here, [first, verdict("hung", run=OTHER)]))


@pytest.mark.parametrize("symptom", ["mismatched-rank", "slow-loader", "bored"])
def test_faults_of_programs_and_storage_cordon_nothing(symptom: str) -> None:
    looks = [(60.0 * n, {RUN: {"n1"}}, [verdict(symptom, at=NOW + 60 * n)]) for n in range(30)]
    assert suspects(*looks) == {}


def test_a_hang_without_a_rank_cordons_nothing() -> None:
    both = [verdict("hung", rank="-1"), verdict("hung", rank="-1", at=NOW + 1)]
    assert suspects((0, {RUN: {"n1"}}, both)) == {}


def test_a_rank_must_stay_slow() -> None:
    looks = [(60.0 * n, {RUN: {"n1"}}, [verdict("slow-rank", at=NOW + 60 * n)]) for n in range(12)]
    assert suspects(*looks[:5]) == {}
    assert "slow for 11 min" in suspects(*looks)["n1"]
    gap = [*looks[:6], (400.0, {RUN: {"n1"}}, []), *looks[7:]]
    assert looks[-1][0] > SLOW_S and suspects(*gap) == {}


def test_at_most_one_node_of_a_pool_in_an_hour_and_a_tenth_of_it() -> None:
    found = {f"n{n}": "why" for n in range(4)}
    pools = {f"n{n}": "spot" for n in range(25)} | {"m0": "bought"}
    assert allowed(found, pools, {}, NOW) == ["n0"]
    assert allowed({**found, "m0": "why"}, pools, {}, NOW) == ["n0", "m0"]
    assert allowed(found, pools, {"n9": NOW - 60}, NOW) == []
    old = NOW - PAUSE_S - 1
    assert allowed(found, pools, {"n9": old}, NOW) == ["n0"]
    assert allowed(found, pools, {"n9": old, "n8": old}, NOW) == []
    assert allowed({"gone": "why"}, pools, {}, NOW) == []


def test_a_node_that_a_person_has_cordoned_or_opened_again_is_not_ours() -> None:
    def node(note: str, *, closed: bool = True) -> Json:
        notes = {naming.CORDONED: note} if note else {}
        meta = {"name": "n1", "uid": "u1", "annotations": notes}
        return {"metadata": meta, "spec": {"unschedulable": closed}}

    ours = json.dumps({"at": NOW, "why": "it hangs"})
    assert cordon.because([node(ours)]) == {"u1": "node n1: it hangs"}
    assert cordon.because([node("")]) == cordon.because([node(ours, closed=False)]) == {}
