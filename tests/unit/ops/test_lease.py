"""A Lease lets one process write at a time, and `cost enforce` goes on whatever fails."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ops import controller
from ops.budgets import decision
from ops.budgets.command import Controller
from ops.budgets.decision import Budget, Level
from ops.cluster import ClusterError, ConflictError, Kind, UnreachableError
from ops.lease import GONE_S, VALID_S, Lease, NotHeldError
from ops.ledger.record import Record


class Api:
    """An API server with at most one Lease."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.down = False

    def get(self, *_: Any) -> dict[str, Any] | None:
        if self.down:
            raise UnreachableError("no answer")
        return self.lease

    def create(self, _: Kind, manifest: dict[str, Any]) -> None:
        if self.lease is not None:
            raise ConflictError("exists")
        self._store(manifest["spec"])

    def patch(self, _: Kind, name: str, change: dict[str, Any], namespace: str) -> None:
        assert (name, namespace) == ("costs", "home")
        version = change.get("metadata", {}).get("resourceVersion", str(self.version))
        if version != str(self.version):
            raise ConflictError("changed")
        self._store(change["spec"])

    def _store(self, spec: dict[str, Any]) -> None:
        self.version += 1
        old = (self.lease or {}).get("spec", {})
        self.lease = {"metadata": {"resourceVersion": str(self.version)}, "spec": old | spec}


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


def two(api: Any, clock: list[float]) -> tuple[Lease, Lease]:
    first, second = (Lease(api, "home", "costs", name, lambda: clock[0]) for name in "ab")
    return first, second


def test_one_of_two_holds_it_and_the_other_waits_until_it_is_gone(clock: list[float]) -> None:
    api = Api()
    first, second = two(api, clock)
    first.renew()
    for at in (0.0, 30.0, 60.0, 90.0):
        clock[0] = at
        with pytest.raises(NotHeldError, match="lease/costs -n home: held by a"):
            second.renew()
        first.renew()
    last = clock[0]
    with pytest.raises(NotHeldError):
        second.renew()
    clock[0] = last + VALID_S + 1
    with pytest.raises(NotHeldError, match="not renewed"):
        first.check()
    clock[0] = last + GONE_S - 1
    with pytest.raises(NotHeldError):
        second.renew()
    clock[0] = last + GONE_S + 1
    second.renew()
    second.check()
    with pytest.raises(NotHeldError, match="held by b"):
        first.renew()


def test_two_that_start_at_once_do_not_both_get_it(clock: list[float]) -> None:
    api = Api()
    first, second = two(api, clock)
    found = api.get
    second.renew()
    api.get = lambda *_: None  # type: ignore[method-assign]  # what `first` saw before
    with pytest.raises(NotHeldError, match="another process"):
        first.renew()
    api.get = found  # type: ignore[method-assign]


def test_a_released_lease_is_free_at_once(clock: list[float]) -> None:
    api = Api()
    first, second = two(api, clock)
    first.renew()
    first.release()
    with pytest.raises(NotHeldError):
        first.check()
    second.renew()
    first.release()
    assert api.lease and api.lease["spec"]["holderIdentity"] == "b"


def test_without_an_answer_the_lease_ends_by_itself(clock: list[float]) -> None:
    api = Api()
    first, _ = two(api, clock)
    first.renew()
    api.down = True
    clock[0] = VALID_S
    with pytest.raises(UnreachableError):
        first.renew()
    first.check()
    clock[0] = VALID_S + 0.1
    with pytest.raises(NotHeldError):
        first.check()


def test_without_the_lease_nothing_is_read_or_recorded(tmp_path: Path, clock: list[float]) -> None:
    api: Any = Api()
    first, second = two(api, clock)
    first.renew()
    record = Record(tmp_path / "record")
    with pytest.raises(NotHeldError):
        Controller(api, record, [], print, lease=second).step(None, 0.0)
    assert record.read() == []


def _any(value: object) -> Any:
    return value


class Looks:
    """A controller whose looks end as given; then the process is interrupted."""

    def __init__(self, *ends: Exception | float) -> None:
        self._ends: Iterator[Exception | float] = iter(ends)

    def step(self, *_: Any) -> float:
        end = next(self._ends, None)
        if end is None:
            raise KeyboardInterrupt
        if isinstance(end, Exception):
            raise end
        return end


def test_a_loop_goes_on_after_any_error_of_the_cluster_and_says_each_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    said: list[str] = []
    looks = Looks(
        ClusterError("HTTP 422"), ClusterError("HTTP 422"), UnreachableError("gone"), 1.0, 1.0
    )
    args = argparse.Namespace(once=False, every=60)
    with pytest.raises(KeyboardInterrupt):
        controller.repeat(args, looks.step, None, said.append)
    assert said == ["nothing done: HTTP 422", "nothing done: gone"]
    args.once = True
    twice = Looks(1.0, 1.0)
    assert controller.repeat(args, twice.step, None, said.append, looks=2) == 0
    with pytest.raises(KeyboardInterrupt):
        twice.step()
    with pytest.raises(ClusterError, match="HTTP 422"):
        controller.repeat(args, Looks(ClusterError("HTTP 422")).step, None, said.append)


def test_a_teams_own_error_does_not_keep_others_from_their_budgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    budgets = decision.parse_budgets([_budget("a"), _budget("b")])
    api: Any = Api()
    controller = Controller(api, Record(tmp_path), budgets, said.append)
    done = []

    def of_team(self: Controller, one: Any, *_: Any) -> float:
        if one.team == "a":
            raise ClusterError("clusterqueues: not found")
        done.append(one.team)
        return 5.0

    monkeypatch.setattr(Controller, "_of_team", of_team)
    waits = [controller._try_team(one, _any(None), _any(None)) for one in budgets]
    assert (waits, done) == ([float("inf"), 5.0], ["b"])
    assert said == ["team a: nothing done: clusterqueues: not found"]


def _budget(team: str) -> dict[str, Any]:
    return {
        "team": team,
        "usdPerMonth": 10.0,
        "gpuHoursPerMonth": None,
        "warnAt": 0.8,
        "action": "hold",
        "spotFlavors": ["spot"],
        "usualPriority": 100,
    }


def test_a_file_of_budgets_is_read_or_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "budgets.json"

    def read() -> list[Budget]:
        return controller.read_published("--budgets", file, "budgets", decision.parse_budgets)

    with pytest.raises(ClusterError, match="not readable"):
        read()
    for bad in ("", "{}x", '[{"team": "a"}]', "[1]", '[{"team":"a","action":"?"}]'):
        file.write_text(bad)
        with pytest.raises(ClusterError, match=r"not the stack's budgets.*pulumi up"):
            read()
    file.write_text("[]")
    assert read() == []
    assert decision.parse_budgets([_budget("a")])[0].action is Level.HOLD
