"""Checks of nodes, the parts without torch: what is compared, what a cause says, what is printed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainer.validation import consistency, gang, host, smoke, transport
from trainer.validation.__main__ import main
from trainer.validation.consistency import Expected, Finding, Verdict, report_verdict
from trainer.validation.gang import FAILED, OUTCOME, Gang, LaunchResult
from trainer.validation.host import Interface
from trainyard.contract import EXIT_PREEMPTED, rendezvous_port

ROOT = Path(__file__).resolve().parents[3]
ETH0 = Interface(name="eth0", network="10.0.3.7/19", mtu=9001)
ETH1 = Interface(name="eth1", network="10.0.64.9/19", mtu=1500)
LOOPBACK = Interface(name="lo", network="127.0.0.1/8", mtu=65536)
ALL = [LOOPBACK, ETH0, ETH1]
PAIR = Gang(nodes=2, processes=8, job="try", leader="try-0.validation", port=29410)


def facts(node: str = "a", **changed: Any) -> dict[str, Any]:
    """What a rank on an EFA node tells."""
    told = {
        "node": node,
        "zone": "us-east-1a",
        "interface": "eth0",
        "mtu": 9001,
        "fabric_devices": 4,
        "memlock": 1 << 43,
        "device": "cuda",
        "model": "NVIDIA A100-SXM4-40GB",
        "driver": "580.95",
        "cuda": "13.0",
        "nccl": "2.29.3",
    }
    return told | changed


def cause(*ranks: dict[str, Any], **expected: Any) -> str:
    found = consistency.first_finding(ranks, Expected(**expected))
    assert found is None or found.remedy
    return found.cause if found else ""


KNOWN = {"models": ("a100",), "mtu": 9001, "zone": "us-east-1a", "fabric_devices": 4}
A80, A40 = "NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-40GB"


@pytest.mark.parametrize(
    ("changed", "expected", "words"),
    [
        ({}, {}, ""),
        ({}, KNOWN, ""),
        ({"mtu": 1500}, {}, "MTU differs: 9001 on a; 1500 on b"),
        ({"driver": "570.1"}, {}, "different drivers: 580.95 on a; 570.1 on b"),
        ({"model": "NVIDIA H100"}, {}, f"different GPU models: {A40} on a"),
        ({"nccl": "2.28.0"}, {}, "different NCCL versions: 2.29.3 on a; 2.28.0 on b"),
        ({"cuda": "12.8"}, {}, "different CUDA versions"),
        ({"device": "cpu"}, {}, "different kinds of devices: cuda on a; cpu on b"),
        (
            {"unmatched_setting": "NCCL_SOCKET_IFNAME=ens5"},
            {},
            "no interface matches NCCL_SOCKET_IFNAME=ens5 on b",
        ),
        ({}, {"mtu": 1500}, "MTU is 9001 on a, b; the pool's network has 1500"),
        ({"mtu": 1500}, {"mtu": 1500}, "MTU is 9001 on a; 1500 on b; the pool's network has 1500"),
        ({}, {"zone": "us-east-1b"}, "zone is us-east-1a on a, b; the pool is in us-east-1b"),
        ({}, {"models": ("h100",)}, f"GPU model is {A40} on a, b; the pool has h100"),
        ({}, {"fabric_devices": 32}, "fabric devices: 4 on a, b; a node of the pool has 32"),
        # 8 MiB is containerd's default.
        (
            {"memlock": 8 << 20},
            KNOWN,
            "the limit of locked memory is 8388608 on b (bytes)",
        ),
        ({"memlock": "unlimited"}, KNOWN, ""),
        ({"memlock": 8 << 20}, {}, ""),  # TCP locks none
        ({"mtu": None, "zone": ""}, {"mtu": 9001}, ""),  # what is not known is not compared
        ({"zone": "us-east-1b"}, {}, ""),  # noted, see below
    ],
)
def test_the_cause_names_nodes_that_differ_or_are_not_what_the_stack_says(
    changed: dict[str, Any], expected: dict[str, Any], words: str
) -> None:
    found = cause(facts("a"), facts("b", **changed), **expected)
    assert found.startswith(words) and bool(found) == bool(words)


@pytest.mark.parametrize(
    ("model", "device", "expected", "ok"),
    [
        ("NVIDIA L40S", "cuda", "l4", False),
        ("NVIDIA L4", "cuda", "l4", True),
        (A80, "cuda", "a100-80gb", True),
        (A40, "cuda", "a100-80gb", False),
        ("some CPU", "cpu", "l4", True),
    ],
)
def test_a_model_is_a_word_of_the_devices_name(
    model: str, device: str, expected: str, ok: bool
) -> None:
    assert (cause(facts(model=model, device=device), models=(expected,)) == "") == ok


NODE = "h200-2:6831:6840 [0] NCCL INFO "


@pytest.mark.parametrize(
    ("lines", "used"),
    [
        (["NET/OFI Selected Provider is efa (found 16 nics)", "Using network Libfabric"], "efa"),
        (
            [
                "NET/OFI Selected provider is efa, fabric is efa-direct",
                "Using network AWS Libfabric",
            ],
            "efa",
        ),
        (
            ["NET/OFI Selected Provider is tcp;ofi_rxm", "Using network AWS Libfabric"],
            "libfabric over tcp;ofi_rxm",
        ),
        (["Using network AWS Libfabric"], "libfabric over an unknown provider"),
        (["NET/Plugin: Could not find: libnccl-net.so.", "Using network Socket"], "socket"),
        (["Using network IBext_v8"], "ib"),
        (["Using network IB", "Using network Socket"], "socket"),
        (["Bootstrap : Using eth0:10.0.3.7<0>"], ""),
    ],
)
def test_the_transport_is_read_from_nccl_s_log(lines: list[str], used: str) -> None:
    assert transport.transport_of("".join(f"{NODE}{line}\n" for line in lines)) == used


def test_the_log_of_this_process_is_read_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = transport.log_environment(tmp_path)
    assert transport.used_here(environment) == "" == transport.used_here({})
    line = f"{NODE}Using network Socket\n"
    (tmp_path / f"nccl-{os.getpid()}.log").write_text(line)
    assert transport.used_here(environment) == "socket"
    assert capsys.readouterr().err == line


def test_ranks_that_use_another_network_than_the_pool_s_are_told() -> None:
    ranks = [{"node": "a", "transport": "efa"}, {"node": "b", "transport": "socket"}]
    assert consistency.transport_finding(ranks[:1], "efa") is None
    assert consistency.transport_finding(ranks, "") is None
    found = consistency.transport_finding(ranks, "efa")
    assert found and found.cause == "transport is efa on a; socket on b; the pool's network is efa"
    found = consistency.transport_finding([{"node": "a", "transport": ""}], "efa")
    assert found and "not named in NCCL's log on a" in found.cause


def test_the_limit_of_locked_memory_is_that_of_the_process() -> None:
    code = (
        "import resource as r; from trainer.validation import host;"
        "hard = r.getrlimit(r.RLIMIT_MEMLOCK)[1];"
        "r.setrlimit(r.RLIMIT_MEMLOCK, (65536, hard));"
        "print(host.host_facts()['memlock'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "65536"


def test_the_page_explains_each_fact_of_a_host() -> None:
    page = (ROOT / "docs/readiness.md").read_text(encoding="utf-8")
    first_columns = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    explained = {name for cell in first_columns for name in re.findall(r"`(\w+)`", cell)}
    assert {*host.host_facts({}), "transport"} <= explained


def test_several_zones_are_noted_and_no_failure() -> None:
    ranks = [facts("a"), facts("b", zone="us-east-1b")]
    assert consistency.cross_zone_notes(ranks) == [
        "ranks are in several zones, which slows collectives: us-east-1a on a; us-east-1b on b"
    ]
    assert consistency.cross_zone_notes([facts("a"), facts("b", zone="")]) == []


def test_an_expectation_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown mtuu"):
        Expected.from_json('{"mtuu": 1}')
    assert Expected.from_json('{"models": ["a100"], "gbps": 40}').models == ("a100",)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("eth", ["eth0", "eth1"]),
        ("=eth1", ["eth1"]),
        ("=eth", []),
        ("^lo", ["eth0", "eth1"]),
        ("^=eth0", ["lo", "eth1"]),
        ("ens,eth1", ["eth1"]),
    ],
)
def test_interfaces_are_chosen_as_nccl_chooses_them(pattern: str, names: list[str]) -> None:
    assert [one.name for one in host.match_interfaces(pattern, ALL)] == names


OWN = {host.POD_IP_ENV: "10.0.3.7"}


@pytest.mark.parametrize(
    ("environment", "interface"),
    [
        (OWN, ETH0),
        ({host.POD_IP_ENV: "127.1.9.4"}, LOOPBACK),
        ({**OWN, "NCCL_SOCKET_IFNAME": "eth1"}, ETH1),
        ({**OWN, "NCCL_SOCKET_IFNAME": "^lo"}, ETH0),
        ({**OWN, "NCCL_SOCKET_IFNAME": "ens5"}, None),
        ({}, None),
        ({host.POD_IP_ENV: "fd00::1"}, None),
    ],
)
def test_collectives_use_the_interface_that_is_set_else_the_pods_own(
    environment: dict[str, str], interface: Interface | None
) -> None:
    assert host.collective_interface(environment, ALL) == interface


def judged(tmp_path: Path, code: int, *, said: str = "", failure: str = "", **more: Any) -> Verdict:
    """What a node says whose launcher ended so."""
    if failure:
        (tmp_path / f"{FAILED}1").write_text(failure)
    ended = LaunchResult(code=code, output=said.splitlines(), **more)
    return gang.judge(PAIR, "collective", ended, tmp_path)


def test_what_the_ranks_found_is_the_verdict(tmp_path: Path) -> None:
    finding = {"cause": "MTU differs", "remedy": "compare"}
    outcome = {"finding": finding, "facts": {"node": "a", "bandwidth_gbps": 1.5}}
    (tmp_path / OUTCOME).write_text(json.dumps(outcome))
    verdict = judged(tmp_path, 0)
    assert verdict.finding == Finding(**finding)
    assert verdict.facts["bandwidth_gbps"] == 1.5
    (tmp_path / OUTCOME).write_text(json.dumps(outcome | {"finding": None}))
    assert judged(tmp_path, 0).ok


@pytest.mark.parametrize(
    ("code", "more", "words"),
    [
        (128 + signal.SIGKILL, {}, "a rank of this node was ended by SIGKILL"),
        (
            1,
            {"said": "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError\n"},
            "the 2 nodes did not meet at try-0.validation:29410 within 300 s",
        ),
        (
            1,
            {
                "said": "x.api.RendezvousConnectionError: The connection to the C10d store has failed."
            },
            "the place to meet, try-0.validation:29410, cannot be reached: The c",
        ),
        (1, {"failure": "RuntimeError: [gloo] Connection closed by peer"}, "another rank is gone"),
        (1, {"failure": "OutOfMemoryError: CUDA out of memory"}, "OutOfMemoryError: CUDA out of"),
        (1, {"in_time": False}, "not done within 900 s"),
        (3, {"said": "strange\n\n"}, "its launcher ended with 3, and last said: strange"),
        (EXIT_PREEMPTED, {"interrupted": True}, "told to stop before it was done"),
        (EXIT_PREEMPTED, {}, "another rank is gone or hangs, or cannot be reached: the launcher"),
        (0, {}, "its launcher ended with 0, and last said: nothing"),
    ],
)
def test_a_check_that_did_not_end_says_why(
    tmp_path: Path, code: int, more: dict[str, Any], words: str
) -> None:
    finding = judged(tmp_path, code, **more).finding
    assert finding and finding.cause.startswith(words)
    assert finding.remedy


def test_the_gate_does_not_meet_where_the_run_will() -> None:
    for port in (29400, 29450, 29499):
        assert gang.gate_port(port) != port
        assert 29400 <= gang.gate_port(port) < 29500
    assert 29400 <= rendezvous_port("llama-v3-01234567") < 29500


def passed_by(monkeypatch: pytest.MonkeyPatch, verdict: Verdict) -> tuple[int, list[str]]:
    """The exit code of a gate whose check ends so, and the command that it becomes."""
    became: list[str] = []
    monkeypatch.setattr(gang, "run_check", lambda *_: verdict)
    monkeypatch.setattr(gang, "exec_command", became.extend)
    return gang.run_gate(PAIR, 40.0, ["run", "it"]), became


def test_a_gate_lets_the_run_pass_only_if_its_network_suffices(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert passed_by(monkeypatch, Verdict(validation="collective")) == (0, ["run", "it"])
    slow = Verdict(validation="collective", finding=Finding(cause="slow", remedy="hurry"))
    assert passed_by(monkeypatch, slow) == (1, [])
    # Nothing is lost: another attempt begins, and does not count as a failure.
    stopped = Verdict(validation="collective", finding=gang.INTERRUPTED)
    assert passed_by(monkeypatch, stopped) == (EXIT_PREEMPTED, [])
    assert len(capsys.readouterr().out.splitlines()) == 3


SMI = """0, NVIDIA A100-SXM4-40GB, 580.95, GPU-1, 0
1, NVIDIA A100-SXM4-40GB, 580.95, GPU-2, 3
"""


def test_lost_gpus_and_ecc_errors_are_told_by_nvidia_smi_alone() -> None:
    gpus = list(smoke.parse_nvidia_smi(SMI))
    assert [g.driver for g in gpus] == ["580.95", "580.95"]
    lost = smoke.check_driver(gpus, 8)
    assert lost and lost.cause == "nvidia-smi shows 2 GPUs; the pod asked for 8"
    bad = smoke.check_driver(gpus, 2)
    assert bad and bad.cause == "uncorrectable ECC errors: GPU 1 (GPU-2): 3"
    without_ecc = list(smoke.parse_nvidia_smi(SMI.replace(", 3", ", [N/A]")))
    assert smoke.check_driver(without_ecc, 2) is None


def test_a_node_without_a_working_driver_fails_the_smoke_check_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    absent = smoke.run_smoke(8, "cuda", Expected()).finding
    assert absent and absent.cause == "there is no nvidia-smi in this container"
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\nexit 18\n"
    )
    tool.chmod(0o755)
    broken = smoke.run_smoke(8, "cuda", Expected()).finding
    assert broken and broken.cause == (
        "nvidia-smi failed with 18: Failed to initialize NVML: Driver/library version mismatch"
    )
    assert "container runtime" in broken.remedy


def test_a_verdict_is_one_line_of_json_in_the_log_and_in_the_pods_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = tmp_path / "termination-log"
    told.touch()
    bad = Verdict(
        validation="smoke",
        finding=Finding(cause="it is hot", remedy="cool it"),
        facts={"node": "a"},
    )
    assert report_verdict(bad, told) == 1
    [line] = capsys.readouterr().out.splitlines()
    assert told.read_text() == line
    assert json.loads(line) == {
        "validation": "smoke",
        "ok": False,
        "cause": "it is hot",
        "remedy": "cool it",
        "node": "a",
    }
    assert report_verdict(Verdict(validation="smoke"), tmp_path / "absent") == 0


def test_a_command_line_that_cannot_work_is_never_retried(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["smoke", "--device", "cpu", "--expect", '{"mtuu": 1}'])
    assert caught.value.code == 78
    assert "--expect" in capsys.readouterr().err
