"""Lines of runs' logs are counted once each, whatever becomes of the files."""

from __future__ import annotations

import re
from pathlib import Path

from infra.observability.log_patterns import COUNTED
from sandbox.monitoring.exporter import log_counts
from sandbox.monitoring.exporter.log_counts import KEPT_S, LogCounts, LoggedPod
from sandbox.node.shim import Log

MATCHING = "rank 0: another rank is gone or hangs: Connection closed by peer\n"
PATTERN = "collective-timeout"
STARTED = 1000.0


class Watched:
    """One pod of a run and the counts of its log."""

    def __init__(self, folder: Path, created: float = STARTED + 1) -> None:
        self.log = folder / "trainer" / "0.log"
        self.log.parent.mkdir(parents=True)
        self.counts = LogCounts(STARTED)
        self.created = {"u": created}
        self.pods = [LoggedPod(uid="u", namespace="n", pod="p", run_id="r", folder=folder)]

    def write(self, text: str) -> None:
        Log(str(self.log), limit_bytes=1 << 30).write(text.encode())

    def scrape(self, now: float = STARTED + 2) -> dict[str, int]:
        self.counts.update(self.pods, self.created, now)
        found = re.findall(r'pattern="([^"]+)"[^}]*} (\d+)', self.counts.text())
        return {name: int(count) for name, count in found}


def test_a_new_pod_shows_zeros_first_so_that_its_first_match_is_an_increase(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.write(MATCHING)
    assert watched.scrape() == dict.fromkeys(COUNTED, 0)
    assert watched.scrape()[PATTERN] == 1


def test_a_pod_from_before_the_exporter_shows_what_it_had_at_once(tmp_path: Path) -> None:
    watched = Watched(tmp_path, created=STARTED - 1)
    watched.write(MATCHING)
    assert watched.scrape()[PATTERN] == 1


def test_each_line_counts_once_and_only_when_it_is_whole(tmp_path: Path) -> None:
    watched = Watched(tmp_path, created=0)
    watched.write(MATCHING + MATCHING[:30])
    assert watched.scrape()[PATTERN] == 1
    assert watched.scrape()[PATTERN] == 1
    watched.write(MATCHING[30:] + "all is well\n")
    assert watched.scrape()[PATTERN] == 2


def test_nothing_is_lost_and_nothing_counted_twice_when_a_log_is_moved_aside(
    tmp_path: Path,
) -> None:
    watched = Watched(tmp_path, created=0)
    watched.write(MATCHING)
    watched.scrape()
    watched.write(MATCHING)
    watched.log.rename(f"{watched.log}.1")
    watched.write(MATCHING)
    assert watched.scrape()[PATTERN] == 3
    assert watched.scrape()[PATTERN] == 3


def test_a_long_log_is_read_in_parts(tmp_path: Path) -> None:
    watched = Watched(tmp_path, created=0)
    lines = log_counts.READ_BYTES // len(MATCHING) + 10
    watched.write(MATCHING * lines)
    assert watched.scrape()[PATTERN] < lines
    assert watched.scrape()[PATTERN] == lines


def test_counts_of_a_deleted_pod_are_kept_for_a_while(tmp_path: Path) -> None:
    watched = Watched(tmp_path, created=0)
    watched.scrape()
    watched.write(MATCHING)
    watched.pods = []
    assert watched.scrape(STARTED + KEPT_S)[PATTERN] == 1
    assert watched.scrape(STARTED + 2 * KEPT_S) == {}


def test_counts_are_labelled_with_their_pod(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.scrape()
    assert f'{{pattern="{PATTERN}",namespace="n",pod="p",run_id="r"}} 0' in watched.counts.text()
