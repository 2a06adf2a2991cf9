"""docs/recover.md, "A second region": a run goes on, exactly, in another stack on another control plane."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from bench.embedded import running_cluster
from tests.sandbox.node_kit import until
from tests.sandbox.region_kit import STEPS, Region, lines, run_file, steps

pytestmark = [pytest.mark.sandbox, pytest.mark.full_only, pytest.mark.timeout(3600)]


def test_a_run_goes_on_in_a_second_stack_after_its_folder_was_copied(tmp_path: Path) -> None:
    run = run_file(tmp_path)
    with running_cluster(print, tuned=False) as one:
        first = Region(one, "first", tmp_path)
        first.up(run)
        until(lambda: bool(list(first.runs().glob("moved-v1-*/metrics.jsonl"))), "it trains", 900)
        (mine,) = first.runs().glob("moved-v1-*")
        until(lambda: max(steps(mine), default=0) >= 15, "step 15", 900)
        first.ops("stack", "drain", "--timeout", "600")
        saved = max(steps(mine))
        kept = tmp_path / mine.name
        shutil.copytree(
            mine, kept
        )  # `aws s3 sync` of the page: all that is left of the first region.
    with running_cluster(print, tuned=False) as other:
        second = Region(other, "second", tmp_path)
        second.up()
        shutil.copytree(kept, second.runs() / mine.name)
        begun = time.monotonic()
        second.up(run)
        again = second.runs() / mine.name
        until(lambda: max(steps(again)) > saved, "the run goes on", 900)
        seconds = time.monotonic() - begun
        resumed = [one for one in lines(again, "events.jsonl") if one.get("event") == "resumed"]
        assert resumed[-1]["from_step"] == saved
        until(lambda: max(steps(again)) == STEPS, "the run ends", 1800)
        print(f"saved at step {saved}; past it {seconds:.0f} s after the second stack had the run")
