"""Commands that start the ranks of a node: what is derived from the run is never typed by a user.

Each rank runs under `trainyard.rank`. No launcher restarts ranks: the Kubernetes object restarts the
gang.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import secrets
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trainyard.contract import (
    EXIT_DIR_ENV,
    EXPORTED_ENV,
    LAUNCHERS,
    METRICS_ADDRESS_ENV,
    NODE_NAME_ENV,
    POD_IP_ENV,
    POD_NAME_ENV,
    START_TIMEOUT_S,
)

RANK_PARENT: Final = (sys.executable, "-u", "-m", "trainyard.rank", "--")
_MODULES: Final = {
    "torchrun": ("torch",),
    "accelerate": ("torch", "accelerate"),
    "deepspeed": ("torch", "deepspeed"),
}
_DISTRIBUTED_TYPE: Final = re.compile(r"^distributed_type:\s*['\"]?(\w+)", re.MULTILINE)
_PORTS: Final = range(20_000, 29_000)
MPI_HOSTFILES: Final = ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile")
"""Variables by which an MPI operator names the hosts of a job in its launcher pod."""


class LaunchError(Exception):
    """The program cannot be started as the run file says; the text is one line."""


@dataclass(frozen=True)
class Ranks:
    """The ranks of a run as one node sees them."""

    run_id: str
    nodes: int
    node_rank: int
    per_node: int
    host: str
    """Name of the first node."""
    port: int

    @property
    def world_size(self) -> int:
        return self.nodes * self.per_node


@dataclass(frozen=True)
class Start:
    command: list[str]
    expected_ranks: int
    """Ranks that leave a result for this launcher."""
    shared: bool = False
    """Whether it starts ranks on other hosts, too."""
    ranks: tuple[Mapping[str, str], ...] = ({},)
    """Variables of each process that runs the command: one launcher, or each rank."""


def start_of(
    launcher: str,
    ranks: Ranks,
    command: Sequence[str],
    settings: Mapping[str, Any],
    env: Mapping[str, str],
) -> Start:
    """Return how to start the ranks of this node. Raises LaunchError.

    `command`: the program's words; `settings`: program.json; `env`: the program's environment.
    """
    for module in _MODULES.get(launcher, ()):
        if importlib.util.find_spec(module) is None:
            raise LaunchError(
                f"program.launcher: {launcher} requires the Python package {module}; the image does not "
                "contain it; use an image that does, or another launcher"
            )
    rank = [*RANK_PARENT, *rank_command(command)]
    if launcher == "python":
        return _python(ranks, rank, env)
    if launcher == "mpirun":
        return _mpirun(ranks, rank, env, settings.get("env", {}))
    if launcher == "accelerate":
        return _accelerate(ranks, rank, settings.get("accelerate"))
    # DeepSpeed reads torchrun's variables; its own launcher needs ssh or pdsh, which pods do not have.
    if launcher in ("torchrun", "deepspeed"):
        join_s = settings.get("join_timeout_s", START_TIMEOUT_S)
        return Start(_torchrun(ranks, rank, join_s), ranks.per_node)
    raise LaunchError(
        f"program.launcher: {launcher!r} is not a launcher; use one of {', '.join(LAUNCHERS)}"
    )


def rank_command(words: Sequence[str]) -> list[str]:
    """Return the command of a rank: Python for a script or `-m MODULE`, otherwise a program as it is."""
    if words[0].endswith(".py") or words[0] == "-m":
        return [sys.executable, *words]
    return list(words)


def _python(ranks: Ranks, rank: list[str], env: Mapping[str, str]) -> Start:
    """Start the ranks without a launcher of their own, which would load torch first."""
    if ranks.nodes > 1:
        raise LaunchError(
            f"program.launcher: python starts the ranks of one node, and the run has {ranks.nodes} nodes; "
            "use torchrun, or nodes: 1"
        )
    if ranks.per_node == 1:
        return Start(rank, 1)
    size = str(ranks.per_node)
    everyone = {
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        # As torchrun does: otherwise each rank would take all cores.
        "OMP_NUM_THREADS": env.get("OMP_NUM_THREADS", "1"),
    }
    numbers = map(str, range(ranks.per_node))
    variables = tuple({**everyone, "RANK": number, "LOCAL_RANK": number} for number in numbers)
    return Start(rank, ranks.per_node, ranks=variables)


def _free_port() -> int:
    """Return a port on which nobody listens, outside of the range that the kernel gives to clients."""
    while True:
        port = _PORTS.start + secrets.randbelow(len(_PORTS))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _torchrun(ranks: Ranks, rank: list[str], join_s: int) -> list[str]:
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks.per_node}"]
    if ranks.nodes == 1:
        command.append("--standalone")
    else:
        command += [
            f"--nnodes={ranks.nodes}",
            f"--rdzv-id={ranks.run_id}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={ranks.host}:{ranks.port}",
            f"--rdzv-conf=join_timeout={join_s}",
        ]
    return [*command, "--max-restarts=0", "--no-python", *rank]


def _accelerate(ranks: Ranks, rank: list[str], config: str | None) -> Start:
    command = [sys.executable, "-m", "accelerate.commands.launch"]
    kind = ""
    if config:
        command += ["--config_file", config]
        found = _DISTRIBUTED_TYPE.search(_text(config, "program.accelerate"))
        kind = found[1].upper() if found else ""
    if ranks.world_size > 1 and kind in ("", "NO", "MULTI_CPU"):
        command.append("--multi_gpu")  # accelerate's word for several ranks under torchrun
    if not config:
        command += ["--mixed_precision=no", "--dynamo_backend=no"]  # else it warns about defaults
    if kind == "DEEPSPEED":
        command.append("--deepspeed_multinode_launcher=standard")  # the others need ssh
    command += [
        f"--num_machines={ranks.nodes}",
        f"--machine_rank={ranks.node_rank}",
        f"--num_processes={ranks.world_size}",
        f"--main_process_ip={ranks.host}",
        f"--main_process_port={ranks.port if ranks.nodes > 1 else 0}",
        *(["--rdzv_backend=c10d"] if ranks.nodes > 1 else []),
        "--max_restarts=0",
        "--no_python",
    ]
    return Start([*command, *rank], ranks.per_node)


def _mpirun(ranks: Ranks, rank: list[str], env: Mapping[str, str], own: Mapping[str, str]) -> Start:
    """`own`: the variables that the program asks for, which other hosts need as well."""
    if shutil.which("mpirun", path=env.get("PATH")) is None:
        raise LaunchError(
            "program.launcher: mpirun is not in the image; use an image with Open MPI, or torchrun"
        )
    hostfile = next((env[name] for name in MPI_HOSTFILES if env.get(name)), None)
    if ranks.nodes > 1 and not hostfile:
        raise LaunchError(
            "program.launcher: mpirun reaches other nodes through an MPI operator; use jobKind: mpijob, "
            "or nodes: 1"
        )
    command = ["mpirun", "-np", str(ranks.world_size), "--bind-to", "none"]
    if not hostfile:
        return Start([*command, "--host", f"localhost:{ranks.world_size}", *rank], ranks.world_size)
    command += ["--map-by", f"ppr:{ranks.per_node}:node"]
    exported = {*_EXPORTED, *own, *env.get(EXPORTED_ENV, "").split(",")}
    # The folder of the results is made after this command, and ranks of other pods write into it, too.
    for name in sorted({*env, EXIT_DIR_ENV}):
        fact = name.startswith("TRAINYARD_") and name not in _OF_THIS_POD
        if fact or name in exported:
            command += ["-x", name]
    return Start([*command, *rank], ranks.world_size, shared=True)


_OF_THIS_POD: Final = (
    *(EXPORTED_ENV, METRICS_ADDRESS_ENV),
    *(NODE_NAME_ENV, POD_IP_ENV, POD_NAME_ENV),
)
"""Ranks are in other pods than mpirun: rank 0 serves metrics at the address of its own host."""
_EXPORTED: Final = ("HOME", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "PATH", "PYTHONPATH")


def _text(file: str, key: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise LaunchError(f"{key}: {file}: {error.strerror}") from None
