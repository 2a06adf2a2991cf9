"""Reading logs: which, how much, in what order, and what is shown of them."""

from __future__ import annotations

import threading
import time

from ops import logs
from ops.cluster import ClusterError, ForbiddenError
from ops.objects import Json
from tests.unit.ops.run_fixtures import ended, log, pod
from tests.unit.snapshots import Text

RUNNING: Json = {"containerStatuses": [{"name": "trainer", "state": {"running": {}}}]}
RESTARTED: Json = {
    "containerStatuses": [
        {
            "name": "trainer",
            "restartCount": 1,
            "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-11-21T11:00:00Z"}},
        }
    ]
}
WAITING: Json = {"containerStatuses": [{"name": "trainer", "state": {"waiting": {}}}]}


class Node:
    """Answers log requests; `late`: pods whose answer never comes."""

    def __init__(self, answer: str | Exception = "", late: tuple[str, ...] = ()) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self._answer, self._late = answer, late

    def text(self, path: str, query: list[tuple[str, str]], timeout_s: float) -> str | None:
        self.asked.append((path, dict(query)))
        if any(name in path for name in self._late):
            threading.Event().wait()
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def read(node: Node, *pods: Json, deadline_s: float = 5.0) -> logs.LogReading:
    return logs.read_logs(node, "team-research", pods, deadline_s)  # type: ignore[arg-type]


def test_log_requests_are_bounded_and_have_timestamps() -> None:
    node = Node("2026-11-21T11:59:00.5Z step 1\n2026-11-21T11:59:01Z\nno stamp\n")
    [found] = read(node, pod("a", **RUNNING)).logs
    path, query = node.asked[0]
    assert path == "/api/v1/namespaces/team-research/pods/a/log"
    assert query == {
        "container": "trainer",
        "tailLines": str(logs.LINES_MAX),
        "limitBytes": str(logs.BYTES_MAX),
        "timestamps": "true",
    }
    assert [(line.time, line.text) for line in found.lines] == [
        ("2026-11-21T11:59:00.5Z", "step 1"),
        ("", "no stamp"),
    ]


def test_the_previous_log_of_a_restarted_container_is_read() -> None:
    node = Node("x")
    found = read(node, pod("a", **RESTARTED)).logs
    assert [one.previous for one in found] == [True, False]
    assert node.asked[0][1].get("previous", node.asked[1][1].get("previous")) == "true"


def test_logs_of_containers_that_have_not_started_are_not_read() -> None:
    node = Node("x")
    assert read(node, pod("a", "Pending", **WAITING)) == logs.LogReading()
    assert node.asked == []


def test_failed_pods_are_read_first_up_to_a_limit() -> None:
    crowd = [pod(f"p{n:02}", **RUNNING) for n in range(40)]
    late = pod("z-late", "Failed", **ended(1, seconds_ago=5))
    first = pod("z-first", "Failed", **ended(1, seconds_ago=50))
    found = [place.pod for place in logs.log_refs([*crowd, late, first])]
    assert found[:2] == ["z-first", "z-late"]
    assert len(found) == logs.PODS_MAX


def test_forbidden_logs_are_reported_as_a_gap() -> None:
    assert read(Node(ForbiddenError("no")), pod("a", **RUNNING)) == logs.LogReading(forbidden=True)


def test_a_log_that_times_out_is_reported_and_the_others_are_used(text: Text) -> None:
    begun = time.monotonic()
    reading = read(Node("x", late=("b",)), pod("a", **RUNNING), pod("b", **RUNNING), deadline_s=0.2)
    assert time.monotonic() - begun < 10
    assert [one.pod for one in reading.logs] == ["a"]
    text(reading.gap)


def test_an_unreadable_log_reports_its_error(text: Text) -> None:
    reading = read(Node(ClusterError("the node is gone")), pod("a", **RUNNING))
    text(reading.gap)


def test_log_lines_are_sanitized_and_truncated() -> None:
    assert logs.sanitize("\x1b[31mred\x1b[0m\x07\ttext\x9b2J") == "red text2J"
    assert len(logs.sanitize("x" * 1000)) == logs.SHOWN_CHARS


def test_the_log_tail_is_that_of_the_newest_container() -> None:
    both = [log("a", "old", previous=True), log("a", "1", "2", "3", "4")]
    assert [text[-1] for text in logs.log_tail(both, "a", "trainer")] == ["2", "3", "4"]
    assert logs.log_tail(both, "b", "trainer") == []


def test_the_log_tail_has_the_last_error_of_the_program_and_not_only_torchruns_summary() -> None:
    lines = [
        "train.py: error: unrecognized arguments: --output /checkpoints",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "  error_file: <N/A>",
        "====",
        "launch: rank 0 ended first, with 2",
    ]
    shown = logs.log_tail([log("a", *lines)], "a", "trainer")
    assert [text.partition("trainer: ")[2] for text in shown] == [lines[0], *lines[3:]]
    raised = [*lines[1:], "ValueError: no", "at the end"]
    assert logs.log_tail([log("a", *raised)], "a", "trainer")[1].endswith("ValueError: no")
