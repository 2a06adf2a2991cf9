"""Check this node, or a gang of nodes, before it runs training.

The last line of output is a JSON object: validation, ok, cause, remedy and facts.
Exit codes: 0 passed, 1 failed, 78 invalid command line.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Final

from trainer.cli import Parser
from trainer.validation import gang, host, smoke
from trainer.validation.consistency import Expected, Verdict, report_verdict
from trainer.validation.gang import Gang
from trainyard import contract

GANG_CHECKS: Final = {
    "collective": "collective",
    "train-single": "train",
    "train-multi": "train",
}
"""Check that the ranks run, by name of the validation."""
_GANG_HELP: Final = {
    "collective": "verify all-reduce sums and measure bus bandwidth over all ranks",
    "train-single": "run a short training on one node",
    "train-multi": "run a short training over several nodes",
}
WAITS: Final = ("queueing-low", "queueing-high")
"""Pods that only occupy quota: the readiness check watches their admission and eviction."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one check on this node; returns the exit code."""
    asked = _parse(arguments)
    if asked.validation == "gate":
        return gang.run_gate(_gang(asked), asked.gbps, asked.command)
    if asked.validation == "smoke":
        expected = Expected.from_json(asked.expect)
        return report_verdict(smoke.run_smoke(asked.processes, asked.device, expected))
    if asked.validation in WAITS:
        return report_verdict(_wait(asked.validation, asked.seconds))
    check = GANG_CHECKS[asked.validation]
    return report_verdict(gang.run_check(_gang(asked), asked.validation, check, asked.expect))


def _gang(asked: argparse.Namespace) -> Gang:
    port = contract.rendezvous_port(asked.job)
    return Gang(
        nodes=asked.nodes,
        processes=asked.processes,
        job=asked.job,
        leader=asked.leader if asked.nodes > 1 else "",
        port=gang.gate_port(port) if asked.validation == "gate" else port,
        device=asked.device,
        join_s=asked.join_seconds,
    )


def _wait(validation: str, seconds: float) -> Verdict:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    finding = gang.INTERRUPTED if stopped.wait(seconds) else None
    return Verdict(
        validation=validation, finding=finding, facts={"node": host.host_facts()["node"]}
    )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m trainer.validation",
        description=__doc__,
        epilog="example:\n  python -m trainer.validation collective --processes 8 --device cuda",
    )
    checks = parser.add_subparsers(dest="validation", required=True, metavar="CHECK")
    alone = checks.add_parser("smoke", help="check driver, GPU count, ECC errors and exact matmuls")
    _node_arguments(alone, ("cpu", "cuda"))
    for name in GANG_CHECKS:
        of_gang = checks.add_parser(name, help=_GANG_HELP[name])
        _node_arguments(of_gang)
        _gang_arguments(of_gang)
    for name in WAITS:
        waiting = checks.add_parser(name, help="occupy quota, for the check of queues")
        waiting.add_argument("--seconds", type=float, required=True, help="seconds to wait")
    gated = checks.add_parser(
        "gate", help="run the collective check, then exec the command after --"
    )
    _node_arguments(gated)
    _gang_arguments(gated)
    gated.add_argument("--gbps", type=float, required=True, help="minimum bus bandwidth in GB/s")
    gated.add_argument("command", nargs="+", metavar="-- COMMAND")
    return parser.parse_args(arguments)


def _expectation(text: str) -> str:
    """Return the text if it parses. Raises ValueError."""
    Expected.from_json(text)
    return text


def _node_arguments(
    parser: argparse.ArgumentParser, devices: Sequence[str] = ("auto", "cpu", "cuda")
) -> None:
    parser.add_argument("--processes", type=int, default=1, help="GPUs of this pod (default: 1)")
    parser.add_argument("--device", choices=devices, default=devices[0])
    parser.add_argument(
        "--expect",
        type=_expectation,
        default=json.dumps({}),
        metavar="JSON",
        help="facts that the nodes must show, e.g. '{\"mtu\": 9001}'",
    )


def _gang_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=1, help="nodes of the gang (default: 1)")
    parser.add_argument("--job", default="alone", help="rendezvous id of the gang")
    parser.add_argument("--leader", default="", metavar="HOST", help="host name of the first pod")
    parser.add_argument(
        "--join-seconds",
        type=int,
        default=300,
        metavar="S",
        help="rendezvous timeout (default: 300)",
    )


if __name__ == "__main__":
    sys.exit(main())
