"""The contract between the platform and a program: exit codes, paths, variables, placeholders.

Both sides read it here: the platform writes the variables into the container of a run, and the
launcher, this library and programs read them. Standard library only.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# Exit codes of a rank, of the launcher and so of the pod; sysexits.h has the same meaning for 75 and 78.
EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_PREEMPTED: Final = 75
"""Stopped by a notice: restart, and do not count it as a failure."""
EXIT_BAD_CONFIG: Final = 78
"""The configuration cannot work: fail at once, never retry."""
EXIT_REPLACE_POD: Final = 71
"""Of a pod that restarts its ranks itself: they failed in a way for which a new pod is to be tried; counted."""
REPLACED_CODES: Final = (EXIT_REPLACE_POD, 137, 143)
"""Codes of such a pod after which it is replaced: its own wish, SIGKILL as for memory, SIGTERM."""

LAUNCHERS: Final = ("torchrun", "accelerate", "deepspeed", "mpirun", "python")
"""What can start the ranks of a program."""

SDK_RUNTIME: Final = "torch-distributed"
"""TrainingRuntime of a team's namespace: the one that Kubeflow's SDK takes where none is named."""

RUN_ID_HASH_CHARS: Final = 8
RUN_ID_FORM: Final = re.compile(rf"[a-z][-a-z0-9]*-v[0-9]+-[0-9a-f]{{{RUN_ID_HASH_CHARS}}}")
LATEST: Final = "latest"
"""Dataset version: the newest one when the run first starts."""

RENDEZVOUS_PORT_BASE: Final = 29400
RENDEZVOUS_PORT_COUNT: Final = 100


def rendezvous_port(gang_id: str) -> int:
    """The port of a gang's rendezvous on its first pod.

    Pods that share a host's network, as on the sandbox's process nodes, would collide on one port. All pods of a
    gang compute the same port.
    """
    digest = hashlib.sha256(gang_id.encode()).digest()
    return RENDEZVOUS_PORT_BASE + int.from_bytes(digest[:4], "big") % RENDEZVOUS_PORT_COUNT


# Paths inside the container of a run.
CONFIG_MOUNT: Final = "/etc/trainyard"
CHECKPOINT_MOUNT: Final = "/checkpoints"
DATA_MOUNT: Final = "/data"
SCRATCH_MOUNT: Final = "/scratch"
"""An empty folder on the node's local disk: NVMe where the node has it. Gone with the pod."""
WORKSPACE: Final = "/workspace"
TERMINATION_LOG: Final = "/dev/termination-log"

# Files in CONFIG_MOUNT.
RUN_RECORD_FILE: Final = "run.json"
TRAINER_CONFIG_FILE: Final = "trainer.yaml"
PROGRAM_FILE: Final = "program.json"

# Files of a run directory.
METRICS_FILE: Final = "metrics.jsonl"
EVENTS_FILE: Final = "events.jsonl"
PROFILE_FILE: Final = "profile"
"""A request to profile some steps; removed as it is met."""
PROFILES_DIR: Final = "profiles"
CHECKPOINTS_DIR: Final = "checkpoints"
METRIC_LINE: Final = "trainyard-metric "
"""What a line in the log of a run's first pod begins with that reports metrics: then a JSON object with `step`
and numbers by name. `trainyard sweep` reads these lines; any program may print them."""
CULPRIT_LINE: Final = "trainyard-culprit "
"""What a line in the log of any of a run's pods begins with that names a rank as the cause of trouble: then the
fields of `culprits.Culprit` as a JSON object."""
NO_CHECKPOINT_LINE: Final = "launch: no file in "
"""What the line begins with by which the first node of a program reports that `{checkpoints}` is empty."""
RUN_NOTICE_FILE: Final = "notice"
"""An operator's request to stop; removed once it is acknowledged."""

# The parts of a shutdown that are not the save itself, in seconds.
STEP_ALLOWANCE_S: Final = 10
"""The step in flight ends before a notice is handled."""
WORKER_EXIT_S: Final = 5
"""From the committed checkpoint to the end of a rank's process."""
LAUNCHER_EXIT_S: Final = 5
"""From the last rank's end to the end of the pod's main process."""
START_TIMEOUT_S: Final = 1200
"""Limit of a start in seconds: pods of a gang may start minutes apart, then ranks stage data, load and compile.

The queue waits as long for a gang's pods."""
DEFAULT_NOTICE_S: Final = 90
"""From SIGTERM to the hard end where nothing says how long that is."""


@dataclass(frozen=True)
class Placeholder:
    """A fact of the platform: `{NAME}` in a program's command and environment, and a variable."""

    variable: str
    meaning: str


def _placeholders(**meanings: str) -> Mapping[str, Placeholder]:
    return {
        name: Placeholder(f"TRAINYARD_{name.upper()}", meaning)
        for name, meaning in meanings.items()
    }


PLACEHOLDERS: Final = _placeholders(
    run_id="id of the run: NAME-vVERSION-HASH8",
    run_dir="folder of the run, shared by its nodes and kept between attempts",
    checkpoints="folder of the run's checkpoints, in run_dir",
    data="folder of the dataset",
    scratch="folder on the node for temporary files; empty at each start",
    source="folder of the program's unpacked source; the working directory of the ranks",
    nodes="number of nodes",
    gpus_per_node="ranks per node, one GPU each",
    world_size="ranks in all",
    rendezvous="HOST:PORT at which the nodes meet",
    rendezvous_host="host name of the first node",
    rendezvous_port="port at which the nodes meet",
    attempt="restarts of the whole gang, 0 in the first attempt",
    node_rank="index of the node, from 0",
    notice_seconds="seconds from SIGTERM to the hard end",
    tracking_uri="MLflow tracking server; empty without one",
    metrics_port="port on which the leading rank serves Prometheus metrics",
    team="team of the run",
    capacity_type="how the node is bought: spot, on-demand or reserved; empty if unknown",
    run_record="file with the run's origin (run.json)",
    deepspeed_config="file with DeepSpeed's configuration; empty without one",
)
"""Placeholders by name."""

# Variables that are placeholders, by the name that code uses for them.
RUN_ID_ENV: Final = PLACEHOLDERS["run_id"].variable
RUN_DIR_ENV: Final = PLACEHOLDERS["run_dir"].variable
CHECKPOINTS_ENV: Final = PLACEHOLDERS["checkpoints"].variable
CHECKPOINT_STORE_ENV: Final = "TRAINYARD_CHECKPOINT_STORE"
"""s3://BUCKET/PREFIX that holds the checkpoints of `save_async` in place of the run's folder."""
DATA_ENV: Final = PLACEHOLDERS["data"].variable
SCRATCH_ENV: Final = PLACEHOLDERS["scratch"].variable
SOURCE_ENV: Final = PLACEHOLDERS["source"].variable
NODES_ENV: Final = PLACEHOLDERS["nodes"].variable
GPUS_PER_NODE_ENV: Final = PLACEHOLDERS["gpus_per_node"].variable
RENDEZVOUS_HOST_ENV: Final = PLACEHOLDERS["rendezvous_host"].variable
RENDEZVOUS_PORT_ENV: Final = PLACEHOLDERS["rendezvous_port"].variable
ATTEMPT_ENV: Final = PLACEHOLDERS["attempt"].variable
"""Unset where restarts are not counted."""
NODE_RANK_ENV: Final = PLACEHOLDERS["node_rank"].variable
NOTICE_SECONDS_ENV: Final = PLACEHOLDERS["notice_seconds"].variable
TRACKING_URI_ENV: Final = PLACEHOLDERS["tracking_uri"].variable
METRICS_PORT_ENV: Final = PLACEHOLDERS["metrics_port"].variable
TEAM_ENV: Final = PLACEHOLDERS["team"].variable
CAPACITY_TYPE_ENV: Final = PLACEHOLDERS["capacity_type"].variable
RUN_RECORD_ENV: Final = PLACEHOLDERS["run_record"].variable

# Variables that are no placeholders: their value is of use to this library only.
WORKER_INDEX_ENV: Final = "TRAINYARD_WORKER_INDEX"
"""Index of a node among those after the first; where it is set, the node's rank is one more."""
METRICS_ADDRESS_ENV: Final = "TRAINYARD_METRICS_ADDRESS"
"""Address on which metrics are served; unset: that of the host's name."""
NOTICE_FILE_ENV: Final = "TRAINYARD_NOTICE_FILE"
"""A file that appears when the node will be reclaimed."""
EXPORTED_ENV: Final = "TRAINYARD_EXPORTED"
"""Names of further variables, separated by commas, that mpirun gives to ranks in other pods: the run's network
settings and secrets. A session of sshd has none of its pod's variables."""
EXIT_DIR_ENV: Final = "TRAINYARD_EXIT_DIR"
"""Folder in which the ranks of a node record their exit codes for the launcher."""
READY_FILE_ENV: Final = "TRAINYARD_READY_FILE"
"""A file that exists while the pod's replica group takes part in the training; unset: nothing waits for it."""
GROUPS_ENV: Final = "TRAINYARD_GROUPS"
"""How many groups a run has, in JSON: `min`, `max` and `spares`; unset: any number."""
RESTARTS_IN_POD_ENV: Final = "TRAINYARD_RESTARTS_IN_POD"
"""How often the ranks were started again in this pod, after failures; unset: never."""
NODE_NAME_ENV: Final = "TRAINYARD_NODE"
POD_NAME_ENV: Final = "TRAINYARD_POD"
ZONE_ENV: Final = "TRAINYARD_ZONE"
POD_IP_ENV: Final = "TRAINYARD_POD_IP"
POOL_ENV: Final = "TRAINYARD_POOL"
"""Node pool of the node."""
INSTANCE_TYPE_ENV: Final = "TRAINYARD_INSTANCE_TYPE"
