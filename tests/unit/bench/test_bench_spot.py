"""The benchmark `spot`: an exact optimum, no missed deadline on any market, and files of every kind."""

from __future__ import annotations

import itertools
import json
import math
import random
import statistics
from functools import cache
from pathlib import Path

import pytest

from bench import __main__ as command
from bench.spot import synthetic
from bench.spot.measure import Replayed, as_json, jobs, measure, section
from bench.spot.optimum import cheapest
from bench.spot.replay import AlwaysSpot, Job, Observed, Ours, UniformProgress, replay
from bench.spot.traces import Trace, TraceError, load
from training.spot.decide import Now, Place
from training.spot.rates import HALF_LIFE_S

GAP_S = 600


def trace_of(*zones: str, gap_s: int = GAP_S) -> Trace:
    """A trace of zones such as 1101, one character per tick."""
    there = {f"zone-{i}": tuple(c == "1" for c in z) for i, z in enumerate(zones)}
    return Trace(name="made", gap_s=gap_s, nodes=1, zones=there)


class Scripted:
    """Follows a list of places, on-demand after it."""

    def __init__(self, places: tuple[tuple[Place, str], ...]) -> None:
        self._places = list(places)

    def choose(self, now: Now) -> tuple[Place, str]:
        """Return the next place; on-demand for spot that is not there."""
        place = self._places.pop(0)
        return (
            place if place[0] is not Place.SPOT or place[1] in now.available else (Place.WAIT, "")
        )


def by_brute_force(trace: Trace, job: Job) -> float:
    """The least cost over all sequences of places."""
    places = [(Place.WAIT, ""), (Place.ON_DEMAND, ""), *((Place.SPOT, z) for z in trace.zones)]
    sequences = itertools.product(places, repeat=-(-job.end_s // trace.gap_s))
    found = (replay(trace, job, Scripted(s)) for s in sequences)
    return min((r.cost for r in found if r.finished_s is not None), default=math.inf)


@pytest.mark.parametrize("seed", range(12))
def test_the_optimum_is_the_cheapest_of_all_sequences(seed: int) -> None:
    chance = random.Random(seed)
    zones = ["".join(chance.choice("01") for _ in range(6)) for _ in range(1 + seed % 2)]
    job = Job(
        work_s=chance.choice((900, 1800, 2400)),
        restart_s=chance.choice((0, 200, 700)),
        end_s=chance.choice((3000, 3300)),
        deadline=True,
        start=0,
    )
    trace = trace_of(*zones)
    assert cheapest(trace, job) == pytest.approx(by_brute_force(trace, job)), (zones, job)


@cache
def replayed() -> list[Replayed]:
    return measure(synthetic.traces(7, 2), (0.2, 0.6), lambda *_: None)


def test_no_deadline_is_missed_and_uniform_progress_is_not_cheaper() -> None:
    found = replayed()
    assert all(one.results["ours"].finished_s is not None for one in found)

    def mean(policy: str) -> float:
        return statistics.mean(one.ratio(policy) or math.inf for one in found)

    assert 1 <= mean("ours") < mean("uniform-progress") < mean("always-on-demand")
    assert all((one.ratio(p) or 1) > 1 - 1e-9 for one in found for p in one.results)


def test_results_are_the_same_in_json_and_in_the_table() -> None:
    found = as_json(replayed())
    assert found["policies"]["ours"]["missed"] == 0
    assert (
        f"| **ours** | {len(found['jobs'])} | 0 | {found['policies']['ours']['mean']} |"
        in section(replayed())
    )
    assert {job["kind"] for job in found["jobs"]} == {"deadline", "batch"}


@pytest.mark.parametrize(
    "zone", ["1" * 400, "0" * 400, "10" * 200, "1" * 50 + "0" * 350, "1100" * 100]
)
@pytest.mark.parametrize("gap_s", [32, 600, 3600])
def test_a_deadline_holds_on_a_strange_market(zone: str, gap_s: int) -> None:
    trace = trace_of(zone, gap_s=gap_s)
    for job in jobs(trace, (0.0, 1.0)):
        for policy in (Ours(trace, job), UniformProgress(job)):
            assert replay(trace, job, policy).finished_s is not None, (type(policy), job)


def test_a_policy_knows_nothing_of_the_future() -> None:
    job = Job(work_s=6 * 3600, restart_s=180, end_s=9 * 3600, deadline=True, start=6)
    pasts = [trace_of("110011" + "1" * 20 + "0" * 40), trace_of("110011" + "1" * 20 + "1" * 40)]
    seen = []
    for trace in pasts:
        policy, choices = Ours(trace, job), []
        for tick in range(20):
            available = frozenset(z for z, there in trace.zones.items() if there[job.start + tick])
            now = Now(elapsed_s=tick * GAP_S, work_left_s=3600, available=available, step_s=GAP_S)
            choices.append(policy.choose(now))
        seen.append(choices)
    assert seen[0] == seen[1]


def test_spot_that_never_comes_is_late_only_for_always_spot() -> None:
    trace = trace_of("0" * 400)
    job = next(iter(jobs(trace, (0.0,))))
    assert replay(trace, job, AlwaysSpot()).finished_s is None
    assert cheapest(trace, job) == job.work_s + job.restart_s


def write(folder: Path, name: str, data: object, gap: object = 300) -> None:
    (folder / f"{name}.json").write_text(
        json.dumps({"metadata": {"gap_seconds": gap}, "data": data})
    )


def test_zones_of_a_region_at_the_same_time_are_one_more_trace(tmp_path: Path) -> None:
    for zone in ("us-east-1a", "us-east-1d", "us-west-2b"):
        write(tmp_path, f"availability_4-node_aws-02-15-2023_{zone}_v100_1", [4, 9, 3, 0])
    found = load(tmp_path)
    assert [sorted(t.zones) for t in found[3:]] == [["us-east-1a", "us-east-1d"]]
    assert found[0].nodes == 4 and found[0].zones["us-east-1a"] == (True, True, False, False)
    assert load(tmp_path, nodes=3)[0].zones["us-east-1a"] == (True, True, True, False)


def test_every_file_that_is_no_trace_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "good", [1])
    write(tmp_path, "negative", [1, -1])
    write(tmp_path, "no-gap", [1], gap=0)
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(TraceError) as raised:
        load(tmp_path)
    assert [name in str(raised.value) for name in ("broken", "negative", "no-gap", "good")] == [
        True
    ] * 3 + [False]
    with pytest.raises(SystemExit):
        command.main(["spot", "--traces", str(tmp_path)])
    assert "negative.json" in capsys.readouterr().err


def test_an_empty_trace_has_no_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "empty", [])
    assert command.main(["spot", "--traces", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == []


def test_rates_start_at_the_prior_follow_what_is_seen_and_fade() -> None:
    seen = Observed(4)
    assert seen.rates().lost * 3600 == pytest.approx(0.8)
    for hour in range(200):
        seen.add(hour % 10 != 9, 3600)
    assert seen.rates().lost * 3600 == pytest.approx(1 / 9, rel=0.15)
    assert seen.rates().back * 3600 == pytest.approx(1, rel=0.3)
    for _ in range(20):
        seen.add(True, HALF_LIFE_S / 2)
    assert seen.rates().lost * 3600 < 0.01
