"""Series that let each alert about the stack fire, and series that do not."""

from __future__ import annotations

from typing import Final

from tests.sandbox.rule_case import GPU, NODE, Case, Series, quiet


def _quota(
    nominal: int, reserved: int, pending: int, status: str = "active", *, parked: bool = False
) -> Series:
    queue = 'cluster_queue="team-llm"'
    of_gpus = f'{queue}, cohort="all", flavor="spot", resource="nvidia.com/gpu"'
    return {
        f'kueue_pending_workloads{{{queue}, status="active"}}': f"{0 if parked else pending}+0x600",
        f'kueue_pending_workloads{{{queue}, status="inadmissible"}}': (
            f"{pending if parked else 0}+0x600"
        ),
        f"kueue_cluster_queue_nominal_quota{{{of_gpus}}}": f"{nominal}+0x600",
        f"kueue_cluster_queue_resource_reservation{{{of_gpus}}}": f"{reserved}+0x600",
        f'kueue_cluster_queue_status{{{queue}, status="active"}}': (
            "1+0x600" if status == "active" else "0+0x600"
        ),
    }


_ADMITTED: Final = 'kueue_admitted_workloads_total{cluster_queue="team-llm", priority_class=""}'


def _condition(node: str, condition: str, status: str = "true") -> str:
    return (
        f'kube_node_status_condition{{node="{node}", condition="{condition}", status="{status}"}}'
    )


def _gpus(node: str) -> str:
    return (
        f'kube_node_status_allocatable{{node="{node}", resource="nvidia_com_gpu", unit="integer"}}'
    )


def holds(gpus: int) -> Series:
    return {
        _gpus("n0"): "8+0x600",
        'kube_pod_container_resource_requests{namespace="team-llm", pod="hello-0", node="n0",'
        ' container="trainer", resource="nvidia_com_gpu", unit="integer"}': f"{gpus}+0x600",
    }


def _drill(name: str, *, failed: bool, start: int = 60) -> Series:
    job = f'namespace="team-llm", job_name="{name}"'
    return {
        f'kube_job_owner{{{job}, owner_kind="CronJob", owner_name="restore-drill"}}': "1+0x600",
        f'kube_job_failed{{{job}, condition="true"}}': "1+0x600" if failed else "0+0x600",
        f"kube_job_status_start_time{{{job}}}": f"{start}+0x600",
    }


def _succeeded(second: int) -> Series:
    labels = 'namespace="team-llm", cronjob="restore-drill"'
    return {f"kube_cronjob_status_last_successful_time{{{labels}}}": f"{second}+0x600"}


def _volume(free: int, node: str) -> Series:
    volume = f'namespace="team-llm", persistentvolumeclaim="checkpoints", node="{node}"'
    return {
        f"kubelet_volume_stats_available_bytes{{{volume}}}": f"{free}+0x600",
        f"kubelet_volume_stats_capacity_bytes{{{volume}}}": "100+0x600",
    }


def _run_sees(free: int, pod: str) -> Series:
    run = f'namespace="team-llm", pod="{pod}", run_id="{pod}", team="llm"'
    return {
        f"trainyard_volume_free_bytes{{{run}}}": f"{free}+0x600",
        f"trainyard_volume_size_bytes{{{run}}}": "100+0x600",
    }


_OF_GPU: Final = {"node": "n0", "gpu": "0", "UUID": "GPU-0"}
_STATE_UP: Final[Series] = {'up{job="kube-state-metrics", instance="a"}': "1+0x600"}


def _budget(state: str, used: str = "0.85+0x600") -> Series:
    """What a team's budget is in, one state of all; looked at a second before each scrape."""
    states = ("ok", "warned", "held", "drained", "overridden")
    own = 'team="llm", job="costs", instance="a"'
    return {
        f"trainyard_costs_recorded_timestamp_seconds{{{own[12:]}}}": "-1+60x600",
        f"trainyard_costs_budget_decided_timestamp_seconds{{{own}}}": "-1+60x600",
        f"trainyard_costs_budget_used_ratio{{{own}}}": used,
        **{
            f'trainyard_costs_budget_state{{{own}, state="{one}"}}': f"{int(one == state)}+0x600"
            for one in states
        },
    }


_DECIDED: Final = (
    'trainyard_costs_budget_decided_timestamp_seconds{team="llm", job="costs", instance="a"}'
)
_RECORDED: Final = 'trainyard_costs_recorded_timestamp_seconds{job="costs", instance="a"}'
_LOOKED: Final = 'trainyard_steering_looked_timestamp_seconds{job="steering", instance="a"}'
_STEERED: Final[Series] = {_LOOKED: "-1+60x600"}
_WATCHED: Final[Series] = {**_STATE_UP, **_budget("ok"), **_STEERED}
"""Of the targets, all answer."""

OF_STACK: Final = (
    *(
        Case(
            alert="BudgetUsed",
            what=f"a team's budget is {state}",
            series=_budget(state),
            labels={"team": "llm", "state": state},
            value="85%",
        )
        for state in ("warned", "held", "drained")
    ),
    *(
        quiet("BudgetUsed", f"the budget is {state}", _budget(state))
        for state in ("ok", "overridden")
    ),
    Case(
        alert="MonitoringTargetDown",
        what="costs were not recorded for 20 minutes",
        series={**_STATE_UP, **_STEERED, **_budget("ok"), _RECORDED: "-1+60x40 2399+0x100"},
        labels={"job": "costs"},
    ),
    Case(
        alert="MonitoringTargetDown",
        what="one team is not decided on",
        series={**_STATE_UP, **_STEERED, **_budget("ok"), _DECIDED: "-1+60x40 2399+0x100"},
        labels={"job": "costs"},
    ),
    Case(
        alert="MonitoringTargetDown",
        what="the pod of costs is gone, or was never there",
        series={**_STATE_UP, **_STEERED},
        labels={"job": "costs"},
    ),
    Case(
        alert="MonitoringTargetDown",
        what="the last look of steering was 20 minutes ago",
        series={**_STATE_UP, **_budget("ok"), _LOOKED: "-1+60x40 2399+0x100"},
        labels={"job": "steering"},
    ),
    quiet(
        "MonitoringTargetDown",
        "the last looks of costs and steering were 9 minutes ago",
        {
            **_STATE_UP,
            **_budget("held"),
            _RECORDED: "-1+60x51 3059+0x100",
            _DECIDED: "-1+60x51 3059+0x100",
            _LOOKED: "-1+60x51 3059+0x100",
        },
    ),
    Case(
        alert="NodePressure",
        what="a GPU node without disk",
        series={**NODE, _condition("n0", "DiskPressure"): "1+0x60"},
        labels={"node": "n0", "condition": "DiskPressure"},
    ),
    Case(
        alert="NodePressure",
        what="for five minutes, as long as a kubelet reports a moment of it",
        series={**NODE, _condition("n0", "MemoryPressure"): "0+0x55 1+0x4 0+0x60"},
        labels={"node": "n0", "condition": "MemoryPressure"},
    ),
    quiet(
        "NodePressure",
        "a CPU node without disk",
        {
            **NODE,
            _condition("c0", "DiskPressure"): "1+0x60",
            _condition("n0", "DiskPressure"): "0+0x60",
        },
    ),
    Case(
        alert="GpuHardwareError",
        what="fallen off the bus",
        series={f"DCGM_FI_DEV_XID_ERRORS{{{GPU}}}": "0+0x50 79+0x20"},
        labels={**_OF_GPU, "error": "XID 79"},
    ),
    Case(
        alert="GpuHardwareError",
        what="the same under its name from 4.9 on",
        series={f"DCGM_FI_DEV_XID_ERROR{{{GPU}}}": "79+0x60"},
        labels={**_OF_GPU, "error": "XID 79"},
    ),
    Case(
        alert="GpuHardwareError",
        what="a code that another one hides within the same scrape",
        series={
            f"DCGM_FI_DEV_XID_ERRORS{{{GPU}}}": "0+0x55 45+0x20",
            f'DCGM_EXP_XID_ERRORS_COUNT{{{GPU}, xid="74", window_size_in_ms="300000"}}': (
                "_x55 1+0x4 _x20"
            ),
            f'DCGM_EXP_XID_ERRORS_COUNT{{{GPU}, xid="45", window_size_in_ms="300000"}}': (
                "_x55 8+0x4 _x20"
            ),
        },
        minutes=65,
        labels={**_OF_GPU, "error": "XID 74"},
    ),
    Case(
        alert="GpuHardwareError",
        what="a double-bit error",
        series={f"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{GPU}}}": "0+0x50 1+0x20"},
        labels={**_OF_GPU, "error": "ECC"},
    ),
    Case(
        alert="GpuHardwareError",
        what="a row that cannot be remapped",
        series={f"DCGM_FI_DEV_ROW_REMAP_FAILURE{{{GPU}}}": "1+0x60"},
        labels={**_OF_GPU, "error": "row remapping"},
    ),
    quiet(
        "GpuHardwareError",
        "a program's illegal address",
        {
            f"DCGM_FI_DEV_XID_ERRORS{{{GPU}}}": "31+0x60",
            f'DCGM_EXP_XID_ERRORS_COUNT{{{GPU}, xid="31", window_size_in_ms="300000"}}': "1+0x60",
            f"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{GPU}}}": "0+0x60",
        },
    ),
    Case(
        alert="StuckAdmission",
        what="two wait, half is free, nothing moves",
        series={**_quota(16, 8, 2), _ADMITTED: "5+0x600"},
        labels={"cluster_queue": "team-llm"},
        value="2",
    ),
    Case(
        alert="StuckAdmission",
        what="parked while all of the quota is free",
        series=_quota(16, 0, 1, parked=True),
        labels={"cluster_queue": "team-llm"},
        value="1",
    ),
    quiet(
        "StuckAdmission",
        "parked because half of the quota is too little",
        {**_quota(16, 8, 1, parked=True), _ADMITTED: "5+0x600"},
    ),
    quiet(
        "StuckAdmission",
        "the first run ever was admitted ten minutes ago",
        {**_quota(16, 8, 2), _ADMITTED: "_x50 1+0x20"},
    ),
    quiet(
        "StuckAdmission", "all of its quota is used", {**_quota(16, 16, 2), _ADMITTED: "5+0x600"}
    ),
    quiet("StuckAdmission", "it admits", {**_quota(16, 8, 2), _ADMITTED: "0+1x600"}),
    quiet("StuckAdmission", "it is drained", {**_quota(16, 8, 2, "pending"), _ADMITTED: "5+0x600"}),
    quiet("StuckAdmission", "no run waits", {**_quota(16, 8, 0), _ADMITTED: "5+0x600"}),
    Case(
        alert="VolumeAlmostFull",
        what="5 % left, reported by two nodes",
        series={**_volume(5, "n0"), **_volume(5, "n1")},
        labels={"namespace": "team-llm", "persistentvolumeclaim": "checkpoints"},
        value="5%",
    ),
    Case(
        alert="VolumeAlmostFull",
        what="a volume whose driver does not count, by the runs that write there",
        series={**_run_sees(5, "hello-0"), **_run_sees(5, "other-0")},
        labels={"namespace": "team-llm", "persistentvolumeclaim": "checkpoints"},
        value="5%",
    ),
    quiet(
        "VolumeAlmostFull", "half full by either", {**_volume(50, "n0"), **_run_sees(50, "hello-0")}
    ),
    quiet("VolumeAlmostFull", "half full", _volume(50, "n0")),
    Case(
        alert="VolumeAlmostFull",
        what="each save fills it until the oldest checkpoint is deleted",
        series={
            key: "5+0x1 15+0x2 " * 30 if "available" in key else value
            for key, value in _volume(5, "n0").items()
        },
        labels={"namespace": "team-llm", "persistentvolumeclaim": "checkpoints"},
        value="5%",
    ),
    Case(
        alert="RestoreDrillFailed",
        what="after one that succeeded",
        series={**_drill("restore-drill-2", failed=True, start=6000), **_succeeded(3000)},
        labels={"namespace": "team-llm"},
    ),
    Case(
        alert="RestoreDrillFailed",
        what="the first ever",
        series=_drill("restore-drill-1", failed=True),
        labels={"namespace": "team-llm"},
    ),
    quiet(
        "RestoreDrillFailed",
        "one succeeded since",
        {**_drill("restore-drill-2", failed=True, start=3000), **_succeeded(6000)},
    ),
    quiet(
        "RestoreDrillFailed",
        "one that still runs",
        {**_drill("restore-drill-2", failed=False, start=6000), **_succeeded(3000)},
    ),
    Case(
        alert="MonitoringTargetDown",
        what="every exporter of GPUs",
        series={
            **_WATCHED,
            'up{job="dcgm-exporter", instance="a"}': "0+0x60",
            'up{job="dcgm-exporter", instance="b"}': "0+0x60",
        },
        labels={"job": "dcgm-exporter"},
    ),
    Case(
        alert="MonitoringTargetDown",
        what="four of five scrapes fail",
        series={**_WATCHED, 'up{job="dcgm-exporter", instance="a"}': "1 0+0x3 " * 30},
        labels={"job": "dcgm-exporter"},
    ),
    quiet(
        "MonitoringTargetDown",
        "one of five scrapes fails, and a new exporter has not begun to answer",
        {
            **_WATCHED,
            'up{job="dcgm-exporter", instance="a"}': "0 1+0x3 " * 30,
            'up{job="apiserver", instance="b"}': "_x52 0+0x4 1+0x600",
        },
    ),
    Case(
        alert="MonitoringTargetDown",
        what="kube-state-metrics is not even a target",
        series={**_budget("ok"), **_STEERED, 'up{job="apiserver", instance="a"}': "1+0x60"},
        labels={"job": "kube-state-metrics"},
    ),
    Case(
        alert="MonitoringTargetDown",
        what="no pod of Kueue's finds a node",
        series={**_WATCHED, 'up{job="kueue-controller-manager", instance="a"}': "1+0x30 _x200"},
        labels={"job": "kueue-controller-manager"},
    ),
    quiet(
        "MonitoringTargetDown",
        "another pod of Kueue's took over",
        {
            **_WATCHED,
            'up{job="kueue-controller-manager", instance="a"}': "1+0x30 _x200",
            'up{job="kueue-controller-manager", instance="b"}': "_x30 1+0x200",
        },
    ),
    quiet(
        "MonitoringTargetDown",
        "one exporter of two, and a trainer that ended",
        {
            **_WATCHED,
            'up{job="dcgm-exporter", instance="a"}': "0+0x60",
            'up{job="dcgm-exporter", instance="b"}': "1+0x60",
            'up{job="trainer", instance="c"}': "0+0x60",
        },
    ),
)
