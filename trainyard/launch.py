"""The main process of a node: `python3 -m trainyard.launch` starts the program of a run.

It reads program.json and the TRAINYARD_* variables, unpacks the program's source, starts the ranks of
this node by the launcher that the run file names, tells them all of a notice, ends them at its
deadline, and ends with one exit code for the node (trainyard/exit_codes.py).

Outside a run: `python -m trainyard.launch --ranks 2 -- train.py --lr 0.1` starts a script on this machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from trainyard import contract, processes
from trainyard.exit_codes import ExitDir
from trainyard.gang_notice import GangNotice
from trainyard.hangs import Progress
from trainyard.launchers import LaunchError, Ranks, Start, start_of
from trainyard.node import Node
from trainyard.program import Program, ProgramError, program_environment, read_program
from trainyard.rank import stop_deadline_s

_FACTS: Final = {
    "nodes": "1",
    "gpus_per_node": "1",
    "node_rank": "0",
    "attempt": "0",
    "rendezvous_host": "127.0.0.1",
    "rendezvous_port": "29400",
}
"""Values of placeholders where the platform sets none."""


def main(arguments: Sequence[str]) -> int:
    """Run the ranks of this node; return the node's exit code."""
    processes.block_signals()
    processes.adopt_orphans()
    options = _parse(arguments)
    try:
        facts = read_facts(os.environ | _ranks(options))
        program = _program(options)
        with tempfile.TemporaryDirectory(prefix="trainyard-") as scratch:
            facts.setdefault("scratch", scratch)
            return _run(program, facts)
    except (ProgramError, LaunchError) as error:
        for line in str(error).splitlines():
            print(f"launch: {line}", file=sys.stderr)
        return contract.EXIT_BAD_CONFIG


def _program(options: argparse.Namespace) -> Program:
    """Return the program of the command line, or of program.json. Raises ProgramError."""
    if options.command:
        settings = {"join_timeout_s": options.join_seconds}
        return Program(options.launcher, tuple(options.command), settings=settings)
    return read_program(options.program)


def _ranks(options: argparse.Namespace) -> dict[str, str]:
    return {contract.GPUS_PER_NODE_ENV: str(options.ranks)} if options.ranks else {}


def read_facts(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the values of placeholders by name, from the variables that the platform sets."""
    facts = {
        name: environment[one.variable]
        for name, one in contract.PLACEHOLDERS.items()
        if environment.get(one.variable)
    }
    if index := environment.get(contract.WORKER_INDEX_ENV):
        facts["node_rank"] = str(int(index) + 1)
    facts = {**_FACTS, **facts}
    facts.setdefault("world_size", str(int(facts["nodes"]) * int(facts["gpus_per_node"])))
    facts.setdefault("rendezvous", f"{facts['rendezvous_host']}:{facts['rendezvous_port']}")
    return facts


def _run(program: Program, facts: dict[str, str]) -> int:
    ranks = Ranks(
        run_id=facts.get("run_id", "run"),
        nodes=int(facts["nodes"]),
        node_rank=int(facts["node_rank"]),
        per_node=int(facts["gpus_per_node"]),
        host=facts["rendezvous_host"],
        port=int(facts["rendezvous_port"]),
    )
    os.makedirs(facts["scratch"], exist_ok=True)
    folder = program.unpack_source(facts)
    command, env = program_environment(program, facts, os.environ, folder)
    start = start_of(program.launcher, ranks, command, program.settings, env)
    gang = GangNotice.of_run(facts)
    with tempfile.TemporaryDirectory(prefix="exit-", dir=_results_root(start, facts)) as results:
        node = Node(
            results=ExitDir(Path(results)),
            expected_ranks=start.expected_ranks,
            deadline_s=stop_deadline_s(env),
            gang=gang,
            nodes=ranks.nodes,
            checkpoints=_checkpoints(facts),
            progress=Progress.of_run(facts, program.settings),
            poll_s=1.0 if start.shared else 0.1,
        )
        env |= {
            contract.EXIT_DIR_ENV: results,
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(int(node.deadline_s)),
        }
        # Not in the folder, which Python would search before its own library for the modules of the launcher.
        return node.run(start, env, Path(facts["scratch"]) if folder else None)


def _checkpoints(facts: Mapping[str, str]) -> Path | None:
    """Return the folder of the run's checkpoints on its first node; None elsewhere and outside of a run."""
    folder = facts.get("checkpoints")
    return Path(folder) if folder and facts["node_rank"] == "0" else None


def _results_root(start: Start, facts: Mapping[str, str]) -> str:
    """Return the folder of the ranks' results: on the shared volume where ranks run on other hosts."""
    if not start.shared:
        return facts["scratch"]
    if "run_dir" not in facts:
        raise LaunchError(f"{contract.RUN_DIR_ENV} is not set; ranks on other hosts require it")
    os.makedirs(facts["run_dir"], exist_ok=True)
    return facts["run_dir"]


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m trainyard.launch",
        description="Start the ranks of this node and end with their exit code.",
    )
    parser.add_argument(
        "--program",
        type=Path,
        default=Path(contract.CONFIG_MOUNT, contract.PROGRAM_FILE),
        metavar="FILE",
        help="launcher, command, environment and source, in JSON (default: %(default)s)",
    )
    parser.add_argument("--ranks", type=int, metavar="N", help="ranks on this node (default: 1)")
    parser.add_argument(
        "--launcher",
        choices=contract.LAUNCHERS,
        default="python",
        help="what starts the ranks of COMMAND (default: %(default)s)",
    )
    parser.add_argument(
        "--join-seconds",
        type=int,
        default=contract.START_TIMEOUT_S,
        metavar="SECONDS",
        help="for how long torchrun waits for other nodes (default: %(default)s)",
    )
    parser.add_argument(
        "command",
        nargs="*",
        metavar="COMMAND",
        help="after --: a script, -m MODULE or a program, instead of --program",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)
