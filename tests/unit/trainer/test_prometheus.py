"""What a scrape sees: names with units, labels of the run, and numbers that agree."""

from __future__ import annotations

import shutil
import urllib.request
from collections import namedtuple
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from infra.observability import series
from sandbox.ports import free_port
from tests.unit.trainyard.test_culprits import CULPRIT
from training.spec import GraceBudget
from trainyard import prometheus
from trainyard.culprits import Culprit
from trainyard.prometheus import RunCollector, start_server
from trainyard.run_logs import EventLog, StepMetrics, Totals

Usage = namedtuple("Usage", "total used free")
LABELS = {"run_id": "hello-v1-0a1b2c3d", "team": "research"}


def step(totals: Totals, number: int, **changed: float | None) -> None:
    """Add a step of four samples and 32 tokens."""
    values: dict[str, Any] = {field.name: None for field in fields(StepMetrics)}
    values |= {"step": number, "loss": 3.5, "tokens": 32, "tokens_per_s": 64.0, "step_time_s": 0.5}
    values |= {"loader_time_s": 0.1, "collective_time_s": 0.05, "checkpoint_stall_s": 0.0}
    totals.add(StepMetrics(**values | changed), samples=4)


def served(collector: RunCollector, path: str) -> str:
    """What a real connection gets."""
    port = free_port()
    close = start_server(collector, "127.0.0.1", port)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return str(answer.read().decode())
    finally:
        close()


def scraped(collector: RunCollector) -> dict[str, float]:
    """Every sample by name; labels are checked on the way."""
    found = {}
    for family in text_string_to_metric_families(served(collector, "/metrics")):
        for sample in family.samples:
            labels = dict(sample.labels)
            event = labels.pop("event", "")
            assert labels == LABELS
            found[sample.name + event] = sample.value
    return found


def test_counters_are_sums_and_gauges_are_the_newest_step(tmp_path: Path) -> None:
    totals = Totals()
    step(totals, 7, checkpoint_stall_s=0.25)
    step(totals, 8, mfu=0.5)
    found = scraped(RunCollector(totals, LABELS, folder=tmp_path, attempt=2, steps=10))
    assert found["trainyard_steps_total"] == 2
    assert found["trainyard_tokens_total"] == 64
    assert found["trainyard_samples_total"] == 8
    assert found["trainyard_step_seconds_total"] == pytest.approx(1.0)
    assert found["trainyard_loader_seconds_total"] == pytest.approx(0.2)
    assert found["trainyard_collective_seconds_total"] == pytest.approx(0.1)
    assert found["trainyard_checkpoint_stall_seconds_total"] == 0.25
    assert found["trainyard_step"] == 8
    assert found["trainyard_loss_nats"] == 3.5
    assert found["trainyard_tokens_per_second"] == 64.0
    assert found["trainyard_model_flops_utilization_ratio"] == 0.5
    assert (found["trainyard_attempt"], found["trainyard_planned_steps"]) == (2, 10)


def test_before_the_first_step_and_without_a_known_peak_nothing_is_made_up(tmp_path: Path) -> None:
    totals = Totals()
    collector = RunCollector(totals, LABELS, folder=tmp_path, attempt=1, steps=10)
    assert "trainyard_loss_nats" not in scraped(collector)
    step(totals, 1)
    found = scraped(collector)
    assert "trainyard_loss_nats" in found
    assert "trainyard_model_flops_utilization_ratio" not in found


def test_ranks_that_were_named_are_exported_with_the_time_of_the_last_verdict(
    tmp_path: Path,
) -> None:
    collector = RunCollector(Totals(), LABELS, folder=tmp_path, attempt=1, steps=None)
    named = Culprit(
        symptom="slow-rank", rank=3, node="n7", pod="p", step=1, attempt=1, time=100.0, what=""
    )
    collector.add_culprit(named)
    collector.add_culprit(replace(named, step=2, time=160.0))
    labels = 'symptom="slow-rank",culprit_rank="3",culprit_node="n7",culprit_pod="p"'
    text = served(collector, "/culprits")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == 1
    assert labels in lines[0] and lines[0].endswith(" 160.0")
    for rank in range(100):
        collector.add_culprit(replace(named, rank=rank))
    assert collector.culprits_text().count("culprit_timestamp_seconds{") == 32
    assert "culprit" not in collector.text()


def test_the_volume_of_a_run_is_measured_at_its_start_and_after_each_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [700]
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(1000, 1000 - free[0], free[0]))
    collector = RunCollector(Totals(), LABELS, folder=tmp_path, attempt=1, steps=10)
    assert scraped(collector)["trainyard_volume_free_bytes"] == 700
    free[0] = 50
    assert scraped(collector)["trainyard_volume_free_bytes"] == 700, "a scrape does not touch it"
    collector.observe(
        {"event": "checkpoint_commit", "step": 5, "time": 1.0, "seconds": 0.5, "bytes": 77}
    )
    found = scraped(collector)
    assert (found["trainyard_volume_free_bytes"], found["trainyard_volume_size_bytes"]) == (
        50,
        1000,
    )


def test_the_time_that_a_save_may_take_is_the_run_files(tmp_path: Path) -> None:
    grace = GraceBudget.for_save(29.5)
    for record, found in (
        ({"grace": asdict(grace)}, 30.0),
        ({"grace": None}, None),
        ({}, None),
    ):
        collector = RunCollector(
            Totals(), LABELS, folder=tmp_path, attempt=1, steps=None, record=record
        )
        assert scraped(collector).get("trainyard_save_seconds") == found


def test_resumes_are_counted_over_all_attempts(tmp_path: Path) -> None:
    """Attempt 1 fails before it saves, 2 saves, 3 cannot load, 4 and 5 resume; 5 reads it twice."""

    def attempt(number: int, *events: str) -> tuple[float, float]:
        log = EventLog(tmp_path / "events.jsonl", number, enabled=True)
        log.write("started", 0)
        collector = RunCollector(Totals(), LABELS, folder=tmp_path, attempt=number, steps=None)
        log.listen(collector.observe)
        for event in events:
            log.write(event, 1, seconds=1.0, bytes=7)
        log.close()
        found = scraped(collector)
        return found["trainyard_resumes_done"], found["trainyard_resumes_due"]

    assert attempt(1) == (0, 0)
    assert attempt(2, "checkpoint_commit") == (0, 0)
    assert attempt(3) == (0, 1)
    assert attempt(4, "resumed", "checkpoint_commit") == (1, 2)
    assert attempt(5, "resumed", "resumed") == (2, 3)
    assert attempt(6) == (2, 4)


def test_a_run_that_continues_another_has_no_resume_of_its_own(tmp_path: Path) -> None:
    collector = RunCollector(Totals(), LABELS, folder=tmp_path, attempt=1, steps=None)
    collector.observe({"event": "resumed", "step": 10})
    found = scraped(collector)
    assert (found["trainyard_resumes_done"], found["trainyard_resumes_due"]) == (0, 0)


def test_the_volume_is_timed_with_each_event(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", 1, enabled=True)
    log.write("started", 0)
    collector = RunCollector(Totals(), LABELS, folder=tmp_path, attempt=1, steps=None)
    log.listen(collector.observe)
    log.close()
    assert scraped(collector)["trainyard_volume_sync_seconds"] > 0
    assert "sync_s" not in (tmp_path / "events.jsonl").read_text()


COMMIT = {"event": "checkpoint_commit", "step": 1, "time": 1.0, "seconds": 0.5, "bytes": 7}


def exported(folder: Path) -> set[str]:
    """Names of every sample of a run that made a step, evaluated and saved."""
    totals = Totals()
    totals.add(StepMetrics(**{field.name: 1 for field in fields(StepMetrics)}), samples=4)
    record = {"grace": {"checkpoint_deadline_s": 40}}
    elastic = RunCollector(totals, LABELS, folder=folder, attempt=1, steps=10, groups=3)
    elastic.observe({"event": "membership", "groups": 2})
    collector = RunCollector(totals, LABELS, folder=folder, attempt=1, steps=10, record=record)
    collector.observe({"event": "started", "restarts_in_pod": 1, "sync_s": 0.01})
    collector.observe({"event": "evaluated", "loss": 2.5})
    collector.observe(COMMIT)
    collector.add_culprit(CULPRIT)
    texts = (elastic.text(), collector.text(), collector.culprits_text())
    families = [one for text in texts for one in text_string_to_metric_families(text)]
    found = [sample for family in families for sample in family.samples]
    assert all(set(LABELS) <= set(sample.labels) for sample in found)
    return {sample.name for sample in found}


def test_the_table_of_series_has_what_the_trainer_exports_and_nothing_else_of_it(
    tmp_path: Path,
) -> None:
    # Those of control loops are compared in tests/unit/ops/test_budget_metrics.py.
    table = {
        name
        for name in series.ALL
        if name.startswith("trainyard_")
        and not name.startswith((series.COSTS_PREFIX, series.STEERING_PREFIX))
    }
    assert table - {series.LOG_MATCHES.name} == exported(tmp_path)


def test_ranks_that_were_named_are_where_they_are_scraped_often() -> None:
    assert prometheus.CULPRITS_PATH == series.CULPRITS_PATH
    assert series.CULPRIT_TIME.name.startswith(series.CULPRITS_PREFIX)
