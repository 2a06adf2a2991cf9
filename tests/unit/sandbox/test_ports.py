"""Ports stay the same between runs, and move away from other programs."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from sandbox import ports


def test_ports_are_kept_between_two_runs(tmp_path: Path) -> None:
    first, _ = ports.choose_ports(tmp_path / "ports.json", frozenset())
    second, moved = ports.choose_ports(tmp_path / "ports.json", frozenset())
    assert first == second
    assert not moved
    assert len(set(first.values())) == len(ports.NAMES)


def test_a_port_that_another_program_took_moves_and_is_named(tmp_path: Path) -> None:
    first, _ = ports.choose_ports(tmp_path / "ports.json", frozenset())
    with socket.socket() as other:
        other.bind((ports.LOOPBACK, first["apiserver"]))
        other.listen()
        second, moved = ports.choose_ports(tmp_path / "ports.json", frozenset())
    assert second["apiserver"] != first["apiserver"]
    assert moved == [
        f"port {first['apiserver']} of apiserver is taken by another program;"
        f" moved to {second['apiserver']}"
    ]


def test_a_port_that_our_own_running_service_holds_stays(tmp_path: Path) -> None:
    first, _ = ports.choose_ports(tmp_path / "ports.json", frozenset())
    with socket.socket() as service:
        service.bind((ports.LOOPBACK, first["etcd"]))
        service.listen()
        second, moved = ports.choose_ports(tmp_path / "ports.json", frozenset({"etcd"}))
    assert second == first
    assert not moved


def test_a_damaged_port_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "ports.json").write_text("{nonsense")
    chosen, _ = ports.choose_ports(tmp_path / "ports.json", frozenset())
    assert json.loads((tmp_path / "ports.json").read_text()) == chosen


def test_a_command_keeps_to_the_ports_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_PORTS", "20100-20102")
    assert {ports.free_port(taken={20100}) for _ in range(20)} <= {20101, 20102}
    with pytest.raises(OSError, match="20100 to 20102"):
        ports.free_port(taken={20100, 20101, 20102})


@pytest.mark.parametrize("wanted", ["20100", "20102-20100", "1-20000", "20000-40000", "a-b"])
def test_no_range_of_ports(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_PORTS", wanted)
    with pytest.raises(ValueError, match="TRAINYARD_PORTS"):
        ports.free_port()
