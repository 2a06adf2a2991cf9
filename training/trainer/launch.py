"""torchrun for pods: `python -m training.trainer.launch TORCHRUN-ARGUMENTS`.

It runs torch's elastic agent in this process and adds what a pod needs: the ranks' own exit codes
(75, 78) instead of 1, SIGTERM handling before ranks exist, a shutdown timeout long enough for the
last checkpoint (torch's is 30 s), a rendezvous timeout, and restarts (`--max-restarts`) after crashes
only. The trainer's ranks are forked from a fork server that loads their imports during the
rendezvous; other programs start as torchrun starts them.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from training.spec import EXIT_PREEMPTED
from training.trainer.processes.exit_codes import (
    EXIT_DIR_ENV,
    node_exit_code,
    read_config_errors,
    read_exit_codes,
)
from training.trainer.processes.forkserver import PROGRAM

DEFAULT_SHUTDOWN_TIMEOUT_S: Final = 90
"""Time for the ranks' last checkpoint; longer than the trainer's default deadline."""
DEFAULT_JOIN_TIMEOUT_S: Final = 300
"""Rendezvous timeout; pods of a gang may start minutes apart."""


def main(arguments: Sequence[str]) -> int:
    """Launch the ranks of this node and wait for them; return the pod's exit code."""
    signal.signal(signal.SIGTERM, _exit_before_ranks)
    _use_one_thread()
    from torch.distributed import run as torchrun

    options = torchrun.parse_args(list(arguments))  # type: ignore[no-untyped-call]
    from training.trainer.processes import agent

    if options.module and options.training_script == PROGRAM:
        agent.fork_ranks_from(agent.ForkServer.start())
    _exit_on_sigterm()
    _apply_defaults(options)
    with tempfile.TemporaryDirectory(prefix="trainyard-exit-") as folder:
        os.environ[EXIT_DIR_ENV] = folder
        agent.restart_only_after_crashes(Path(folder))
        torchrun_code = _run(options)
        codes = read_exit_codes(Path(folder))
        for text in read_config_errors(Path(folder)):
            print(text, file=sys.stderr)
        # Ranks that torchrun killed left no code; those of the others still count.
        return node_exit_code(
            codes, torchrun.determine_local_world_size(options.nproc_per_node), torchrun_code
        )


def _apply_defaults(options: argparse.Namespace) -> None:
    """Set defaults that differ from torchrun's."""
    if options.shutdown_timeout is None and "TORCH_ELASTIC_SHUTDOWN_TIMEOUT" not in os.environ:
        options.shutdown_timeout = DEFAULT_SHUTDOWN_TIMEOUT_S
    if "join_timeout" not in options.rdzv_conf:
        given = [options.rdzv_conf] if options.rdzv_conf else []
        options.rdzv_conf = ",".join([*given, f"join_timeout={DEFAULT_JOIN_TIMEOUT_S}"])
    if options.max_restarts:
        # The agent's own store would show restarted ranks the addresses of those before them.
        os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")


def _run(options: argparse.Namespace) -> int:
    """Run torchrun's agent; return its exit code and print one line for a failure."""
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError

    try:
        torchrun.run(options)  # type: ignore[no-untyped-call]
    except SignalException as error:
        print(f"launch: ended by {error.sigval.name}", file=sys.stderr)
        return 128 + error.sigval
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        print(f"launch: rank {rank} ended first, with {failure.exitcode}", file=sys.stderr)
        return failure.exitcode if failure.exitcode > 0 else 128 - failure.exitcode
    except RendezvousError as error:
        print(f"launch: the nodes did not meet: {error}", file=sys.stderr)
        return 1
    except (RuntimeError, OSError) as error:
        print(f"launch: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def _use_one_thread() -> None:
    """Keep BLAS libraries from starting threads: a process that forks must have only one."""
    # Otherwise torchrun sets it to 1 with a six-line warning.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _exit_on_sigterm() -> None:
    """Exit on SIGTERM immediately until torchrun has started ranks: there is nothing to save.

    A thread reads the signals: Python runs handlers only between bytecodes of the main thread, which
    may wait inside torch for minutes.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, _noop_handler)
    threading.Thread(target=_read_signals, args=(reader,), daemon=True).start()


def _read_signals(reader: socket.socket) -> None:
    while number := reader.recv(1):
        # torchrun replaces the handler when it starts the first rank.
        if number[0] == signal.SIGTERM and signal.getsignal(signal.SIGTERM) is _noop_handler:
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
