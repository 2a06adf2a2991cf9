"""/etc/hosts of pods."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sandbox.node.api import Json
from sandbox.node.hosts import Peer, host_name, render_hosts, write_in_place

ME = Peer(
    namespace="team",
    name="js-w-0-0-abcde",
    ip="127.1.1.1",
    hostname="js-w-0-0",
    subdomain="js",
    labels={"run": "js"},
    ready=False,
    created="2026-01-01T00:00:00Z",
)
OTHER = replace(ME, name="js-w-0-1-abcde", hostname="js-w-0-1", ip="127.1.1.2")


def _service(publish: bool = True, **spec: object) -> Json:
    default = {"clusterIP": "None", "selector": {"run": "js"}, "publishNotReadyAddresses": publish}
    return {"metadata": {"name": "js", "namespace": "team"}, "spec": {**default, **spec}}


def _names(text: str) -> dict[str, list[str]]:
    """name -> addresses, in the order of the file."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        address, *names = line.split("#")[0].split() or [""]
        for name in names:
            found.setdefault(name, []).append(address)
    return found


def test_without_a_headless_service_a_pod_knows_only_itself() -> None:
    names = _names(render_hosts(ME, [ME, OTHER], []))
    assert names["js-w-0-0.js.team.svc.cluster.local"] == ["127.1.1.1"]
    assert "js-w-0-1.js" not in names
    assert "js-w-0-1.js" not in _names(render_hosts(ME, [OTHER], [_service(clusterIP="10.0.0.1")]))


def test_a_pod_that_is_not_ready_is_known_only_where_the_service_publishes_it() -> None:
    hidden = render_hosts(ME, [OTHER], [_service(publish=False)])
    assert "js-w-0-1.js" not in _names(hidden)
    ready = render_hosts(ME, [replace(OTHER, ready=True)], [_service(publish=False)])
    assert "js-w-0-1.js" in _names(ready)


def test_the_newest_pod_of_a_name_answers_to_it() -> None:
    newer = replace(OTHER, name="js-w-0-1-fghij", ip="127.1.1.9", created="2026-01-02T00:00:00Z")
    names = _names(render_hosts(ME, [OTHER, newer], [_service()]))
    assert names["js-w-0-1.js"] == ["127.1.1.9"]


def test_pods_of_other_namespaces_and_labels_are_not_listed() -> None:
    strangers = [replace(OTHER, namespace="other"), replace(OTHER, labels={"run": "x"})]
    assert "js-w-0-1.js" not in _names(render_hosts(ME, strangers, [_service()]))


def test_a_host_name_is_cut_to_63_characters() -> None:
    pod: Json = {"metadata": {"name": "a" * 70, "namespace": "n"}, "spec": {}}
    assert host_name(pod) == "a" * 63


def test_the_file_keeps_its_inode_and_is_written_only_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    assert write_in_place(path, "long text\n")
    inode = path.stat().st_ino
    assert write_in_place(path, "short\n") and path.read_text() == "short\n"
    assert not write_in_place(path, "short\n")
    assert path.stat().st_ino == inode
