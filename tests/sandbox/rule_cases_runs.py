"""Series that let each alert about runs fire, and series that do not."""

from __future__ import annotations

from typing import Final

from tests.sandbox.rule_case import (
    GPU,
    NODE,
    OF_RUN,
    POD,
    RUN,
    TRAINER,
    UNHELD,
    Case,
    Series,
    quiet,
    util,
)


def _seconds(name: str, rate: float, **more: str) -> Series:
    """A counter of the trainer that gains so many seconds a minute."""
    return {f"trainyard_{name}{{{TRAINER}}}": f"0+{rate}x600"}


def _bursts(usually: str, once: str) -> str:
    """Nine minutes of one value and one of another, again and again."""
    return f"{usually}+0x8 {once} " * 30


def _saves(seconds: str, *, allowed: int, pod: str = "hello-0") -> Series:
    """How long saves took, and how long they may take."""
    labels = TRAINER.replace("hello-0", pod)
    return {
        f"trainyard_checkpoint_write_seconds{{{labels}}}": seconds,
        f"trainyard_save_seconds{{{labels}}}": f"{allowed}+0x600",
    }


_POD_LABELS: Final = {**OF_RUN, "pod": "hello-0"}
_LOG: Final = f'trainyard_log_matches_total{{namespace="team-llm", pod="hello-1", run_id="{RUN}", pattern="%s"}}'


def _started(times: str) -> Series:
    """When the Job of a gang was started; a JobSet deletes it and makes another of the same name."""
    job = f'namespace="team-llm", job_name="{RUN}-worker-0"'
    return {
        f"kube_job_status_start_time{{{job}}}": times,
        f'kube_job_owner{{{job}, owner_kind="JobSet", owner_name="{RUN}"}}': "1+0x600",
    }


def _group(number: int, *, failed: str = "0+0x600", complete: str = "0+0x600") -> Series:
    """The Job of a replica group: whether it has failed, and whether it is complete."""
    job = f'namespace="team-llm", job_name="{RUN}-g{number}-worker-0"'
    owner = f'owner_kind="JobSet", owner_name="{RUN}-g{number}"'
    return {
        f"kube_job_owner{{{job}, {owner}}}": "1+0x600",
        f'kube_job_failed{{{job}, condition="true"}}': failed,
        f'kube_job_complete{{{job}, condition="true"}}': complete,
    }


_FAILED: Final = (
    f'kube_job_failed{{namespace="team-llm", job_name="{RUN}-worker-0", condition="true"}}'
)
_MPI_LAUNCHER: Final = f'namespace="team-llm", job_name="{RUN}-launcher"'
_READY: Final = 'kube_node_status_condition{node="n0", condition="Ready", status="true"}'
_NAMED: Final = (
    f'trainyard_culprit_timestamp_seconds{{{TRAINER}, symptom="%s", culprit_rank="3",'
    ' culprit_node="n7", culprit_pod="hello-1"}'
)


def _culprit(symptom: str) -> dict[str, str]:
    return {
        **OF_RUN,
        "symptom": symptom,
        "culprit_rank": "3",
        "culprit_node": "n7",
        "culprit_pod": "hello-1",
    }


OF_CULPRITS: Final = (
    *(
        Case(
            alert=alert,
            what=f"a rank was named for {symptom} five minutes ago",
            series={_NAMED % symptom: "3300+0x600"},
            labels=_culprit(symptom),
            fires=fires,
        )
        for alert, symptom, fires in (
            ("RankHung", "hung", True),
            ("RankHung", "slow-rank", False),
            ("RankCorrupt", "corrupt-rank", True),
            ("RankCorrupt", "hung", False),
        )
    ),
    quiet("RankHung", "an hour ago, and the run goes on", {_NAMED % "hung": "0+0x600"}),
    quiet("RankCorrupt", "an hour ago", {_NAMED % "corrupt-rank": "0+0x600"}),
)
"""Ranks that the run itself has named."""

_EVENT: Final = f'trainyard_events_total{{{TRAINER}, event="%s"}}'

_SILENT: Final[Series] = {
    **POD,
    **NODE,
    **util(95),
    **_started("60+0x600"),
    'up{job="kube-state-metrics", instance="s"}': "1+0x600",
    'up{job="trainer", instance="hello-0"}': "0+0x600",
}
"""A run whose program reports no metrics: nothing listens at the port that Prometheus scrapes."""

OF_PROGRAMS: Final = (
    *(
        quiet(alert, "a program that reports no metrics", _SILENT)
        for alert in (
            *("LowGpuUtilization", "SlowLoaderHint", "CheckpointSlow"),
            *("CheckpointFailed", "PodRestartLoop", "RunFailed"),
            *("NcclTimeout", "VolumeAlmostFull"),
        )
    ),
    Case(
        alert="LowGpuUtilization",
        what="idle GPUs, which need no report of the program",
        series={**_SILENT, **util(20)},
        labels=_POD_LABELS,
        value="20%",
    ),
    Case(
        alert="PodRestartLoop",
        what="a gang of a program that reports no metrics",
        series={**_SILENT, **_started("60+0x40 2500+0x3 _ 2800+0x3 _ 3100+0x20")},
        minutes=55,
        labels=OF_RUN,
        value="3",
    ),
    Case(
        alert="RunFailed",
        what="a program that reports no metrics",
        series={**_SILENT, _FAILED: "0+0x50 1+0x600"},
        labels=OF_RUN,
    ),
)
"""Runs with `program:`: no alert takes the absence of the program's series for a fault."""

OF_RUNS: Final = (
    *OF_PROGRAMS,
    *OF_CULPRITS,
    Case(
        alert="LowGpuUtilization",
        what="20 % for an hour",
        series={**POD, **util(20)},
        labels=_POD_LABELS,
        value="20%",
    ),
    Case(
        alert="LowGpuUtilization",
        what="the same under the names from 4.9 on",
        series={**POD, f"DCGM_FI_DEV_GPU_UTIL_RATIO{{{GPU}}}": "0.2+0x600"},
        labels=_POD_LABELS,
        value="20%",
    ),
    Case(
        alert="LowGpuUtilization",
        what="an instance of a GPU that is cut, which has no other measure",
        series={**POD, f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{GPU}, GPU_I_ID="1"}}': "0.2+0x600"},
        labels=_POD_LABELS,
        value="20%",
    ),
    quiet(
        "LowGpuUtilization",
        "busy by the measure that counts",
        {**POD, **util(95), f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{GPU}}}": "0.2+0x600"},
    ),
    quiet(
        "LowGpuUtilization",
        "busy, and an idle GPU that no pod holds",
        {**POD, **util(95), **util(0, UNHELD)},
    ),
    quiet(
        "LowGpuUtilization",
        "only for ten minutes",
        {**POD, f"DCGM_FI_DEV_GPU_UTIL{{{GPU}}}": "90+0x49 10+0x20"},
    ),
    Case(
        alert="LowGpuUtilization",
        what="5 %, with one minute in ten of 100 %",
        series={**POD, f"DCGM_FI_DEV_GPU_UTIL{{{GPU}}}": _bursts("5", "100")},
        labels=_POD_LABELS,
        value="17.67%",
    ),
    quiet(
        "LowGpuUtilization",
        "100 %, with one minute in ten of 5 %",
        {**POD, f"DCGM_FI_DEV_GPU_UTIL{{{GPU}}}": _bursts("100", "5")},
    ),
    quiet(
        "LowGpuUtilization",
        "idle while it loads for eight minutes",
        {**POD, f"DCGM_FI_DEV_GPU_UTIL{{{GPU}}}": "_x44 0+0x7 95+0x600"},
    ),
    quiet(
        "LowGpuUtilization",
        "idle until its end five minutes ago",
        {**POD, f"DCGM_FI_DEV_GPU_UTIL{{{GPU}}}": "5+0x54 stale _x600"},
    ),
    Case(
        alert="SlowLoaderHint",
        what="55 % for an hour",
        series={**POD, **util(55)},
        labels=OF_RUN,
        value="55%",
    ),
    quiet("SlowLoaderHint", "65 %", {**POD, **util(65)}),
    Case(
        alert="SlowLoaderHint",
        what="50 %, with one minute in ten of 100 %",
        series={**POD, f"DCGM_FI_DEV_GPU_UTIL{{{GPU}}}": _bursts("50", "100")},
        labels=OF_RUN,
        value="55%",
    ),
    quiet(
        "SlowLoaderHint",
        "75 %, with one minute in ten of 20 %",
        {**POD, f"DCGM_FI_DEV_GPU_UTIL{{{GPU}}}": _bursts("75", "20")},
    ),
    Case(
        alert="CheckpointSlow",
        what="always three minutes, where the run file says 30 s",
        series=_saves("180+0x60", allowed=30),
        labels=OF_RUN,
        value="3m 0s",
    ),
    Case(
        alert="CheckpointSlow",
        what="one of three saves, three minutes apart",
        series=_saves("20+0x2 20+0x2 180+0x2 " * 6 + "20+0x20", allowed=30),
        labels=OF_RUN,
        value="3m 0s",
    ),
    quiet(
        "CheckpointSlow",
        "always twenty minutes, as the run file says",
        _saves("1200+0x60", allowed=1200),
    ),
    quiet("CheckpointSlow", "slower, and quick", _saves("5+0x50 29+0x20", allowed=30)),
    quiet(
        "CheckpointSlow",
        "an earlier attempt's, on slower nodes",
        {
            **_saves("180+0x30 stale _x60", allowed=30),
            **_saves("_x40 20+0x60", allowed=30, pod="hello-1"),
        },
    ),
    Case(
        alert="CheckpointFailed",
        what="the trainer's first such event",
        series={_EVENT % "checkpoint_failed": "_x55 1+0x20"},
        labels=OF_RUN,
    ),
    quiet(
        "CheckpointFailed",
        "saves that worked, and an old failure",
        {_EVENT % "checkpoint_commit": "0+1x600", _EVENT % "checkpoint_failed": "1+0x600"},
    ),
    quiet(
        "NcclTimeout",
        "an old line, after half an hour without scrapes",
        {_LOG % "nccl-timeout": "1+0x20 _x30 1+0x20"},
    ),
    Case(
        alert="NcclTimeout",
        what="a line written without scrapes, after an old one",
        series={_LOG % "nccl-timeout": "1+0x20 _x30 2+0x20"},
        labels=OF_RUN,
    ),
    Case(
        alert="NcclTimeout",
        what="the first line, written without scrapes",
        series={_LOG % "nccl-timeout": "_x50 1+0x20"},
        labels=OF_RUN,
    ),
    Case(
        alert="CheckpointFailed",
        what="a corrupt one, passed over",
        series={_EVENT % "checkpoint_corrupt": "_x58 1+0x20"},
        labels=OF_RUN,
    ),
    quiet("CheckpointFailed", "a run that resumed", {_EVENT % "resumed": "1+0x600"}),
    Case(
        alert="PodRestartLoop",
        what="a container, five times in an hour",
        series={
            **POD,
            'kube_pod_container_status_restarts_total{namespace="team-llm", pod="hello-0",'
            ' container="trainer"}': "0+0x29 1+0x5 2+0x5 3+0x5 4+0x5 5+0x50",
        },
        labels=OF_RUN,
        value="5",
    ),
    Case(
        alert="PodRestartLoop",
        what="four attempts of a gang",
        series={f"trainyard_attempt{{{TRAINER}}}": "1+0x40 2+0x5 3+0x5 4+0x50"},
        labels=OF_RUN,
        value="3",
    ),
    Case(
        alert="PodRestartLoop",
        what="a gang that ends before its trainer is ever asked",
        series=_started("60+0x40 2500+0x3 _ 2800+0x3 _ 3100+0x20"),
        minutes=55,
        labels=OF_RUN,
        value="3",
    ),
    quiet(
        "PodRestartLoop", "a gang that was restarted twice", _started("60+0x40 2500+0x3 2800+0x20")
    ),
    quiet(
        "PodRestartLoop",
        "one preemption",
        {**POD, f"trainyard_attempt{{{TRAINER}}}": "1+0x40 2+0x50"},
    ),
    quiet(
        "PodRestartLoop",
        "groups that lead one after the other, and one that is reclaimed again and again",
        {
            **POD,
            f"trainyard_attempt{{{TRAINER}}}": "1+0x40 2+0x5 3+0x5 4+0x50",
            f"trainyard_planned_groups{{{TRAINER}}}": "3+0x600",
            **_group(1),
            f'kube_job_status_start_time{{namespace="team-llm", job_name="{RUN}-g1-worker-0"}}': (
                "60+0x40 2500+0x3 _ 2800+0x3 _ 3100+0x20"
            ),
        },
    ),
    Case(
        alert="RunFailed",
        what="all groups that it had have failed",
        series={**_group(0, failed="1+0x600"), **_group(1, failed="1+0x600")},
        labels=OF_RUN,
    ),
    quiet(
        "RunFailed",
        "a group failed, and others train",
        {**POD, **_group(0, failed="1+0x600"), **_group(1)},
    ),
    quiet(
        "RunFailed",
        "a group failed before another was done",
        {**_group(0, failed="1+0x600"), **_group(1, complete="1+0x600")},
    ),
    Case(
        alert="RunFailed",
        what="its last Job stays failed",
        series={**_started("60+0x600"), _FAILED: "0+0x50 1+0x600"},
        labels=OF_RUN,
    ),
    Case(
        alert="RunFailed",
        what="a run that is a Job itself",
        series={
            f'kube_job_failed{{namespace="team-llm", job_name="{RUN}", condition="true"}}': "1+0x600"
        },
        labels=OF_RUN,
    ),
    Case(
        alert="RunFailed",
        what="the launcher's Job of an MPIJob",
        series={
            f'kube_job_failed{{{_MPI_LAUNCHER}, condition="true"}}': "1+0x600",
            f'kube_job_owner{{{_MPI_LAUNCHER}, owner_kind="MPIJob", owner_name="{RUN}"}}': "1+0x600",
        },
        labels=OF_RUN,
    ),
    Case(
        alert="RunFailed",
        what="a pod of a PyTorchJob that is not replaced",
        series={
            f'kube_pod_status_phase{{namespace="team-llm", pod="{RUN}-worker-11", phase="Failed"}}': (
                "1+0x600"
            )
        },
        labels=OF_RUN,
    ),
    quiet(
        "RunFailed",
        "a pod of a PyTorchJob that is replaced, one of a JobSet, and the preparation of a dataset",
        {
            f'kube_pod_status_phase{{namespace="team-llm", pod="{RUN}-master-0", phase="Failed"}}': (
                "0+0x10 1+0x2 0+0x600"
            ),
            f'kube_pod_status_phase{{namespace="team-llm", pod="{RUN}-worker-0-0-ab1cd",'
            ' phase="Failed"}': "1+0x600",
            'kube_job_failed{namespace="team-llm", job_name="prepare-wiki-v1", condition="true"}': (
                "1+0x600"
            ),
        },
    ),
    quiet(
        "RunFailed",
        "a restarted gang, and a Job that does not belong to a run",
        {
            **_started("60+0x48 _ 3000+0x600"),
            _FAILED: "0+0x45 1+0x2 _ 0+0x600",
            'kube_job_failed{namespace="team-llm", job_name="drill-1", condition="true"}': "1+0x600",
            'kube_job_owner{namespace="team-llm", job_name="drill-1", owner_kind="CronJob",'
            ' owner_name="restore-drill"}': "1+0x600",
        },
    ),
    Case(
        alert="TrainingPodPending",
        what="since the start",
        series={
            **POD,
            'kube_pod_status_phase{namespace="team-llm", pod="hello-0", phase="Pending"}': "1+0x60",
            'kube_pod_status_phase{namespace="team-llm", pod="hello-0", phase="Running"}': "0+0x60",
        },
        minutes=12,
        labels=_POD_LABELS,
    ),
    quiet(
        "TrainingPodPending",
        "for eight minutes",
        {
            **POD,
            'kube_pod_status_phase{namespace="team-llm", pod="hello-0", phase="Pending"}': "1+0x60",
        },
        minutes=8,
    ),
    quiet(
        "TrainingPodPending",
        "a pod that does not belong to a run",
        {'kube_pod_status_phase{namespace="default", pod="web", phase="Pending"}': "1+0x60"},
    ),
    Case(
        alert="NcclTimeout",
        what="one line",
        series={_LOG % "nccl-timeout": "_x50 1+0x20"},
        labels=OF_RUN,
    ),
    quiet(
        "NcclTimeout",
        "a spot node was reclaimed under the run",
        {
            **POD,
            **NODE,
            _READY: "1+0x48 0+0x3 _x20",
            _LOG % "nccl-timeout": "_x50 1+0x20",
        },
    ),
    quiet(
        "NcclTimeout",
        "the same, and a node of the same name is there again",
        {
            **POD,
            **NODE,
            _READY: "1+0x48 _ 1+0x20",
            'kube_node_created{node="n0"}': "60+0x48 _ 3000+0x20",
            _LOG % "nccl-timeout": "_x50 1+0x20",
        },
    ),
    Case(
        alert="NcclTimeout",
        what="on a spot node that stays, and is new",
        series={
            **POD,
            **NODE,
            _READY: "_x40 1+0x600",
            'kube_node_created{node="n0"}': "_x40 2400+0x600",
            _LOG % "nccl-timeout": "_x50 1+0x20",
        },
        labels=OF_RUN,
    ),
    quiet("NcclTimeout", "an hour ago", {_LOG % "nccl-timeout": "_x10 1+0x600"}),
    quiet("NcclTimeout", "lines of other kinds", {_LOG % "no-space": "0+1x600"}),
)
