"""Metrics of simulated GPUs have the format of dcgm-exporter 4.8."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.domain import naming
from infra.observability import dcgm
from sandbox.monitoring.exporter import text_format, usage
from sandbox.monitoring.exporter.gpus import Assignment, Gpu, Holder, gpu_holders, node_gpus
from sandbox.monitoring.exporter.readings import Load, gpu_fields
from sandbox.monitoring.exporter.usage import Usage

ANNOTATIONS = {naming.NODE_RUNTIME: "process"}


def _node(
    name: str = "spot-0", gpus: int = 2, annotations: Mapping[str, str] = ANNOTATIONS
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "annotations": annotations,
            "labels": {naming.INSTANCE_TYPE: "p4d.24xlarge"},
        },
        "status": {"capacity": {naming.GPU: str(gpus)}},
    }


def _pod(name: str, gpus: int = 1, *, phase: str = "Running", node: str = "spot-0") -> Any:
    limits = {naming.GPU: str(gpus)}
    main = {"name": "trainer", "resources": {"limits": limits, "requests": limits}}
    return {
        "metadata": {"name": name, "namespace": "team-a", "uid": f"uid-{name}"},
        "spec": {"nodeName": node, "containers": [main]},
        "status": {"phase": phase},
    }


def _holder(name: str, gpus: int = 1) -> Holder:
    (found,) = gpu_holders([_pod(name, gpus)])["spot-0"]
    return found


def _held(assignment: Assignment, *wanted: Holder, gpus: int = 2) -> dict[int, str]:
    found = assignment.update({"spot-0": node_gpus(_node(gpus=gpus))}, {"spot-0": list(wanted)})
    return {gpu.index: holder.pod for gpu, holder in found.items()}


def test_a_gpu_has_the_labels_of_its_node_and_model_and_memory_of_its_instance() -> None:
    first, second = node_gpus(_node())
    assert list(first.labels) == ["gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname"]
    assert first.labels["device"] == "nvidia0"
    assert first.labels["Hostname"] == "spot-0"
    assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", first.labels["UUID"])
    assert re.fullmatch(r"00000000:[0-9A-F]{2}:00\.0", first.labels["pci_bus_id"])
    assert first.labels["UUID"] != second.labels["UUID"]
    assert "A100" in first.model
    assert first.memory_mib == 40 * 1024
    assert node_gpus(_node())[0].labels == first.labels


def test_only_simulated_nodes_have_simulated_gpus() -> None:
    assert len(node_gpus(_node(annotations={naming.KWOK_NODE: "fake"}))) == 2
    assert node_gpus(_node(annotations={"other": "annotation"})) == []


def test_only_pods_that_run_hold_gpus() -> None:
    pods = [_pod("going"), _pod("waiting", phase="Pending"), _pod("done", phase="Succeeded")]
    assert [holder.pod for holder in gpu_holders(pods)["spot-0"]] == ["going"]


def test_a_container_keeps_its_gpu_when_others_come_and_go() -> None:
    assignment, first, second, third = Assignment(), _holder("a"), _holder("b"), _holder("c")
    assert _held(assignment, first) == {0: "a"}
    assert _held(assignment, first, second) == {0: "a", 1: "b"}
    assert _held(assignment, second) == {1: "b"}
    assert _held(assignment, third, second) == {0: "c", 1: "b"}


def test_container_holds_its_requested_gpus_up_to_those_of_the_node() -> None:
    assert _held(Assignment(), _holder("a", 2), _holder("b"), gpus=4) == {0: "a", 1: "a", 2: "b"}
    assert _held(Assignment(), _holder("a", 2), _holder("b"), gpus=2) == {0: "a", 1: "a"}


def _used(**computing_s: float) -> Usage:
    """By `p` and pid."""
    seconds = {int(name[1:]): value for name, value in computing_s.items()}
    return Usage(computing_s=seconds, memory_bytes=0)


def test_gpu_utilization_is_that_of_its_rank_not_of_the_whole_pod() -> None:
    launcher_and_rank = _used(p10=3.1, p11=12.0)
    assert usage.gpu_utilization(_used(p10=3.0, p11=4.0), launcher_and_rank, 10.0, 1) == 0.8
    two_ranks = _used(p10=3.0, p11=6.0, p12=8.0)
    assert usage.gpu_utilization(_used(p10=3.0, p11=0.0, p12=0.0), two_ranks, 10.0, 2) == 0.7


def test_utilization_of_new_and_replaced_processes_is_at_most_one() -> None:
    assert usage.gpu_utilization(_used(), _used(p10=50.0), 10.0, 1) == 1.0
    assert usage.gpu_utilization(_used(p10=50.0), _used(p10=1.0), 10.0, 1) == 0.0
    assert usage.gpu_utilization(_used(p10=5.0), _used(), 10.0, 1) == 0.0


def test_cpu_queueing_time_counts_as_gpu_utilization() -> None:
    ran, queued, _ = map(int, Path("/proc/self/schedstat").read_text().split())
    computing_s = usage._computing_s(os.getpid())
    assert computing_s >= (ran + queued) / 1e9 > time.thread_time() / 2
    assert usage._computing_s(2**31 - 1) == 0.0


def test_reading_has_every_field_of_the_counters_file() -> None:
    assert set(gpu_fields(1024, Load(), 0.0)) == set(dcgm.FIELDS)


def test_utilization_is_in_percent_and_memory_in_mebibytes_as_in_dcgm() -> None:
    shown = gpu_fields(1024, Load(busy=0.5, memory_mib=256.4), 0.0)
    assert shown[dcgm.GPU_UTIL] == 50
    assert shown[dcgm.GR_ENGINE] == 0.5
    assert (shown[dcgm.FB_USED], shown[dcgm.FB_FREE]) == (256, 768)


def test_a_gpu_never_uses_more_memory_than_it_has() -> None:
    shown = gpu_fields(1024, Load(busy=1.0, memory_mib=9999), 0.0)
    assert (shown[dcgm.FB_USED], shown[dcgm.FB_FREE]) == (1024, 0)


def test_metrics_page_matches_the_exporter_format() -> None:
    gpu = Gpu(node="spot-0", index=0, model="NVIDIA A100", memory_mib=1024)
    labels = gpu.labels | _holder("a").labels
    text = text_format.metric_family(
        "DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", [(labels, 42)]
    )
    help_line, type_line, sample = text.splitlines()
    assert help_line == "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %)."
    assert type_line == "# TYPE DCGM_FI_DEV_GPU_UTIL gauge"
    assert sample.startswith('DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-')
    assert sample.endswith('container="trainer",namespace="team-a",pod="a"} 42')


def test_label_values_are_escaped() -> None:
    text = text_format.metric_family("a", "gauge", "b", [({"c": 'quote" back\\ line\n'}, 0.25)])
    assert text.splitlines()[-1] == r'a{c="quote\" back\\ line\n"} 0.250000'
