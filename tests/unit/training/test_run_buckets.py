"""Which buckets and prefixes a run may read and write."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from infra.config import ConfigError
from tests.golden.example_runs import IMAGE, RUN_FILE, platform, project_in, write_runs
from tests.unit.infra.config_issues import codes
from training import run_files

Run = dict[str, Any]

BUCKETS = ("acme-datasets", "acme-checkpoints", "acme-artifacts")
WRITABLE = BUCKETS[1:]


@pytest.mark.parametrize(
    ("source", "issue"),
    [
        ("s3://acme-datasets/research/web", ""),
        ("s3://acme-datasets/production/web", "dataset.source: foreign-prefix"),
        ("s3://acme-datasets/research2/web", "dataset.source: foreign-prefix"),
        ("s3://acme-datasets", "dataset.source: foreign-prefix"),
        ("s3://elsewhere/research/web", "dataset.source: foreign-bucket"),
    ],
)
def test_a_run_reads_its_teams_prefix_of_the_stacks_buckets_only(
    source: str, issue: str, tmp_path: Path
) -> None:
    project = project_in(tmp_path)
    write_runs(project, RUN_FILE | {"dataset": {"name": "web", "source": source}})
    known = dataclasses.replace(platform(), buckets=BUCKETS, writable_buckets=WRITABLE)
    if not issue:
        [found] = run_files.load(["llama"], known, {"trainer": IMAGE}, project)
        assert found.dataset.source == source
        return
    with pytest.raises(ConfigError) as caught:
        run_files.load(["llama"], known, {"trainer": IMAGE}, project)
    assert codes(caught.value) == [f"training/runs/llama.yaml: {issue}"]


@pytest.mark.parametrize(
    ("overrides", "secrets", "issue"),
    [
        ({"checkpoint": {"store": "s3://acme-checkpoints/research/run"}}, [], ""),
        (
            {"checkpoint": {"store": "s3://acme-checkpoints/production/run"}},
            [],
            "config: checkpoint.store: foreign-prefix",
        ),
        (
            {"checkpoint": {"store": "s3://elsewhere/run"}},
            [],
            "config: checkpoint.store: foreign-bucket",
        ),
        (
            {"checkpoint": {"store": "s3://acme-datasets/research/run"}},
            [],
            "config: checkpoint.store: read-only-bucket",
        ),
        ({"checkpoint": {"store": "s3://elsewhere/run"}}, ["bucket"], ""),
        (
            {
                "data": {
                    "staging": "/scratch/data",
                    "weight": 0.5,
                    "sources": [{"path": "s3://acme-datasets/production/code", "weight": 0.5}],
                }
            },
            [],
            "config: data.sources[0].path: foreign-prefix",
        ),
    ],
)
def test_a_run_saves_to_its_teams_prefix_unless_it_has_credentials(
    overrides: Run, secrets: list[str], issue: str, tmp_path: Path
) -> None:
    project = project_in(tmp_path)
    write_runs(project, RUN_FILE | {"overrides": overrides, "secrets": secrets})
    known = platform()
    with_secret = dataclasses.replace(
        known.teams["research"], secrets={"bucket": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    )
    known = dataclasses.replace(
        known,
        buckets=BUCKETS,
        writable_buckets=WRITABLE,
        teams={**known.teams, "research": with_secret},
    )
    if not issue:
        assert run_files.load(["llama"], known, {"trainer": IMAGE}, project)
        return
    with pytest.raises(ConfigError) as caught:
        run_files.load(["llama"], known, {"trainer": IMAGE}, project)
    assert codes(caught.value) == [f"training/runs/llama.yaml: {issue}"]
