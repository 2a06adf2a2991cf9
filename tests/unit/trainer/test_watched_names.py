"""Rules and dashboards read of the trainer what the trainer exports, under the same names."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from infra.observability import series
from tests.unit.trainyard.test_culprits import CULPRIT
from trainyard import prometheus
from trainyard.prometheus import RunCollector
from trainyard.run_logs import StepMetrics, Totals

LABELS = {"run_id": "hello-v1-0a1b2c3d", "team": "research"}
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
