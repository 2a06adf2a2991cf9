"""torchrun for pods: `python -m training.trainer.launch TORCHRUN-ARGUMENTS`.

It runs torch's elastic agent in this process and adds what a pod needs: the ranks' own exit codes
(75, 78) instead of 1, SIGTERM handling before ranks exist, a shutdown timeout long enough for the
last checkpoint (torch's is 30 s), a rendezvous timeout, and restarts (`--max-restarts`) after crashes
only; with `--restarts-file FILE` by the rules of trainyard/restart_budget.py, over all pods of a run.
The trainer's ranks are forked from a fork server that loads their imports during the rendezvous; each
rank of another program runs under `trainyard.rank`. Exit codes are those of `trainyard.launch`, which
starts programs of users.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

from training.spec import EXIT_PREEMPTED
from training.trainer.processes.forkserver import PROGRAM
from trainyard.contract import EXIT_DIR_ENV, START_TIMEOUT_S
from trainyard.exit_codes import ExitDir, node_exit_code
from trainyard.launchers import RANK_PARENT, rank_command
from trainyard.restart_budget import PodRestarts, RestartBudget

if TYPE_CHECKING:
    from training.trainer.processes.agent import PodVerdict

DEFAULT_SHUTDOWN_TIMEOUT_S: Final = 90
"""Time for the ranks' last checkpoint; longer than the trainer's default deadline."""


def main(arguments: Sequence[str]) -> int:
    """Launch the ranks of this node and wait for them; return the pod's exit code."""
    signal.signal(signal.SIGTERM, _exit_before_ranks)
    _use_one_thread()
    from torch.distributed import run as torchrun

    own, others = _own_options(arguments)
    options = torchrun.parse_args(others)  # type: ignore[no-untyped-call]
    from training.trainer.processes import agent

    if options.module and options.training_script == PROGRAM:
        agent.fork_ranks_from(agent.ForkServer.start(options.training_script_args))
    else:
        _run_under_parents(options)
    _apply_defaults(options)
    with tempfile.TemporaryDirectory(prefix="trainyard-exit-") as folder:
        results = ExitDir(Path(folder))
        _handle_signals(results)
        os.environ[EXIT_DIR_ENV] = folder
        pod = _pod_restarts(own.restarts_file, options.max_restarts)
        agent.restart_by_cause(results, pod)
        torchrun_code, stopped_by = _run(options)
        for text in results.config_errors():
            print(text, file=sys.stderr)
        ranks = torchrun.determine_local_world_size(options.nproc_per_node)
        request, done = results.first_request(), results.is_done()
        code = node_exit_code(results.results(), ranks, torchrun_code, request, done=done)
        code = pod.exit_code(code) if pod else code
        if stopped_by:
            print(f"launch: stopped by {stopped_by}; ends with {code}", file=sys.stderr)
        return code


def _own_options(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return this launcher's options, and those of torchrun."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--restarts-file", type=Path)
    return parser.parse_known_args(list(arguments))


def _pod_restarts(file: Path | None, max_restarts: int) -> PodVerdict | None:
    """Return who decides on restarts in this pod; None: torch, for this launcher alone."""
    from training.trainer.processes.agent import PodVerdict

    return PodVerdict(PodRestarts(RestartBudget(file, max_restarts))) if file else None


def _run_under_parents(options: argparse.Namespace) -> None:
    """Run each rank under `trainyard.rank`, which records how it really ended."""
    words = [options.training_script, *options.training_script_args]
    if options.module:
        words = ["-m", *words]
    elif not (options.no_python or options.run_path or words[0].endswith(".py")):
        words = [sys.executable, "-u", *words]
    command = [*RANK_PARENT, *(words if options.no_python else rank_command(words))]
    options.no_python, options.module, options.run_path = True, False, False
    options.training_script, *options.training_script_args = command


def _apply_defaults(options: argparse.Namespace) -> None:
    """Set defaults that differ from torchrun's."""
    if options.shutdown_timeout is None and "TORCH_ELASTIC_SHUTDOWN_TIMEOUT" not in os.environ:
        options.shutdown_timeout = DEFAULT_SHUTDOWN_TIMEOUT_S
    if "join_timeout" not in options.rdzv_conf:
        given = [options.rdzv_conf] if options.rdzv_conf else []
        options.rdzv_conf = ",".join([*given, f"join_timeout={START_TIMEOUT_S}"])
    if options.max_restarts:
        # The agent's own store would show restarted ranks the addresses of those before them.
        os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")


def _run(options: argparse.Namespace) -> tuple[int, str]:
    """Run torchrun's agent; return its exit code and the signal that stopped it. Print one line for a failure."""
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError

    try:
        torchrun.run(options)  # type: ignore[no-untyped-call]
    except SignalException as error:
        return 128 + error.sigval, error.sigval.name
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        print(f"launch: rank {rank} ended first, with {failure.exitcode}", file=sys.stderr)
        return (failure.exitcode if failure.exitcode > 0 else 128 - failure.exitcode), ""
    except RendezvousError as error:
        print(f"launch: the nodes did not meet: {error}", file=sys.stderr)
        return 1, ""
    except (RuntimeError, OSError) as error:
        print(f"launch: {type(error).__name__}: {error}", file=sys.stderr)
        return 1, ""
    return 0, ""


def _use_one_thread() -> None:
    """Keep BLAS libraries from starting threads: a process that forks must have only one."""
    # Otherwise torchrun sets it to 1 with a six-line warning.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _handle_signals(results: ExitDir) -> None:
    """Record a request to stop; exit immediately until torchrun has started ranks.

    A thread reads the signals: Python runs handlers only between bytecodes of the main thread, which
    may wait inside torch for minutes.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, _noop_handler)
    threading.Thread(target=_read_signals, args=(reader, results), daemon=True).start()


def _read_signals(reader: socket.socket, results: ExitDir) -> None:
    while number := reader.recv(1):
        if number[0] in (signal.SIGTERM, signal.SIGINT) and results.first_request() is None:
            results.write_notice(time.time())
        # torchrun replaces the handler when it starts the first rank.
        if number[0] == signal.SIGTERM and signal.getsignal(signal.SIGTERM) is _noop_handler:
            shutil.rmtree(results.path, ignore_errors=True)
            _exit_before_ranks()


def _exit_before_ranks(*_: object) -> NoReturn:
    print("launch: stopped by SIGTERM before any rank started", file=sys.stderr, flush=True)
    os._exit(EXIT_PREEMPTED)


def _noop_handler(_: int, __: FrameType | None) -> None:
    """Do nothing: the wake-up descriptor is only written for signals with a handler."""


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
