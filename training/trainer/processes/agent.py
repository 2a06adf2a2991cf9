"""Client of the fork server: runs forked ranks under torch's elastic agent."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from torch.distributed.elastic.agent.server import local_elastic_agent
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import PContext, SubprocessContext
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler
from torch.distributed.launcher import api as launcher

from training.spec import EXIT_BAD_CONFIG, EXIT_PREEMPTED
from training.trainer.processes.forkserver import PROGRAM, RankSpec, serve
from training.trainer.processes.silence import SilentRanks
from trainyard.contract import EXIT_FAILED, RESTARTS_IN_POD_ENV
from trainyard.exit_codes import ExitDir, node_exit_code
from trainyard.restart_budget import PodRestarts

_ANSWER_S: Final = 60.0
"""Timeout of one request."""
_READY_S: Final = 600.0


@dataclass
class ForkServer:
    """Handle of the fork server in the launcher; used by the main thread only."""

    pid: int
    channel: socket.socket
    ready: bool = False
    lost: bool = False
    """Whether the connection is gone; then its ranks count as killed."""
    _codes: dict[int, int | None] = field(default_factory=dict)
    """Exit codes by process id; None while it runs."""

    @classmethod
    def start(cls, arguments: Sequence[str] = ()) -> ForkServer:
        """Fork it; the caller must have no other thread. `arguments`: of the ranks' program."""
        own_end, server_end = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            own_end.close()
            serve(server_end, arguments)
        server_end.close()
        return cls(pid, own_end)

    def wait_until_ready(self) -> bool:
        """Wait until everything is loaded; return whether it can fork, and print why if not."""
        mistake = None
        if not self.ready and not self.lost:
            mistake = self._answer("ready", _READY_S)
            self.ready = mistake is None
        if self.lost or not self.ready:
            self._mark_lost()
            why = mistake or "the fork server is gone"
            print(f"launch: ranks start without the fork server: {why}", file=sys.stderr)
        return self.ready and not self.lost

    def fork(self, spec: RankSpec) -> int:
        """Fork a rank; return its process id. Raises OSError."""
        self._send({"fork": asdict(spec)})
        pid = self._answer("forked", _ANSWER_S)
        if pid is None:
            raise OSError("the fork server cannot fork")
        self._codes.setdefault(pid, None)
        return int(pid)

    def kill(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to the process group of a running rank."""
        if not self.lost:
            self._send({"kill": pid, "signal": int(number)})

    def code(self, pid: int, timeout_s: float) -> int | None:
        """Return a rank's exit code as subprocess does; None when it still runs after the timeout."""
        limit = time.monotonic() + timeout_s
        while self._codes[pid] is None and not self.lost:
            left = max(0.0, limit - time.monotonic())
            if not self._receive(left) and left == 0:
                return None
        return self._codes[pid]

    def _answer(self, kind: str, timeout_s: float) -> Any:
        limit = time.monotonic() + timeout_s
        while not self.lost and (left := limit - time.monotonic()) > 0:
            for message in self._receive(left):
                if kind in message:
                    return message[kind]
        self._mark_lost()
        return None

    def _receive(self, timeout_s: float) -> Sequence[dict[str, Any]]:
        """Return the next messages; record exit codes of ranks."""
        if not select.select([self.channel], [], [], timeout_s)[0]:
            return []
        # torch's signal handlers may raise anywhere: peek first, so that nothing is lost.
        content = self.channel.recv(65536, socket.MSG_PEEK)
        whole = content.rfind(b"\n") + 1
        messages: list[dict[str, Any]] = [json.loads(line) for line in content[:whole].splitlines()]
        for message in messages:
            if "ended" in message:
                self._codes[message["ended"]] = message["code"]
        self.channel.recv(whole)
        if not content:
            self._mark_lost()
        return messages

    def _send(self, request: dict[str, Any]) -> None:
        try:
            self.channel.sendall(json.dumps(request).encode() + b"\n")
        except OSError:
            self._mark_lost()

    def _mark_lost(self) -> None:
        """Kill the ranks: their exit codes can no longer be observed."""
        if self.lost:
            return
        self.lost = True
        self.channel.close()
        for pid, code in self._codes.items():
            if code is None:
                self._codes[pid] = -signal.SIGKILL
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)


class _Rank:
    """A forked rank with the part of subprocess.Popen that torch's agent uses."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self.pid = pid

    def poll(self) -> int | None:
        return self._server.code(self.pid, 0)

    def wait(self, timeout: float) -> int:
        code = self._server.code(self.pid, timeout)
        if code is None:
            raise subprocess.TimeoutExpired(PROGRAM, timeout)
        return code


class _Handler(SubprocessHandler):
    """A forked rank as a SubprocessHandler of torch's agent."""

    def __init__(self, server: ForkServer, local_rank: int, spec: RankSpec) -> None:
        self._server = server
        self.local_rank_id = local_rank
        self.proc = _Rank(server, server.fork(spec))  # type: ignore[assignment]

    def close(self, death_sig: signal.Signals | None = None) -> None:
        self._server.kill(self.proc.pid, death_sig or signal.SIGTERM)


class ForkedContext(SubprocessContext):
    """The ranks of one attempt as forks instead of subprocesses."""

    def __init__(self, server: ForkServer, **options: Any) -> None:
        super().__init__(**options)
        self._server = server

    def _start(self) -> None:
        for rank in range(self.nprocs):
            spec = RankSpec(
                arguments=[str(argument) for argument in self.args[rank][3:]],
                environment={**os.environ, **self.envs[rank]},
                stdout=self.stdouts[rank] or None,
                stderr=self.stderrs[rank] or None,
            )
            self.subprocess_handlers[rank] = _Handler(self._server, rank, spec)


@dataclass
class PodVerdict:
    """What a pod that restarts its ranks decided after their last end."""

    restarts: PodRestarts
    code: int | None = None
    """Exit code of the pod; None: not decided."""

    def may_restart(self, code: int, *, ending: bool) -> bool:
        """Return whether the ranks start again after this failure; `ending`: the pod is to stop."""
        self.code = self.restarts.verdict(code, ending=ending)
        return self.code is None

    def exit_code(self, code: int) -> int:
        """Return the pod's exit code at its end, for the launcher's code."""
        if self.code is None:
            self.code = self.restarts.verdict(code, ending=True)
        return EXIT_FAILED if self.code is None else self.code


def restart_by_cause(folder: ExitDir, pod: PodVerdict | None = None) -> None:
    """Make torch's agent restart ranks after crashes only.

    torch treats every code but 0 as a crash. `folder` has the results of this attempt's ranks. `pod`
    decides for a run whose gang is this pod; without it torch counts.
    """

    class Agent(LocalElasticAgent):
        def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
            folder.clear()
            self._silent = SilentRanks(folder)
            if pod:
                os.environ[RESTARTS_IN_POD_ENV] = str(pod.restarts.restarts)
                pod.restarts.begin()
            started: dict[int, Any] = super()._start_workers(worker_group)
            return started

        def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
            result: RunResult = super()._monitor_workers(worker_group)
            self._silent.end(time.monotonic())
            found, ranks = folder.results(), worker_group.spec.local_world_size
            request = folder.first_request()
            verdict = node_exit_code(found, ranks, 1, request)
            if found and verdict in (EXIT_PREEMPTED, EXIT_BAD_CONFIG):
                self._remaining_restarts = 0
            elif pod and result.is_failed():
                # Not by `request`: torch asks the other ranks to stop as soon as one has failed.
                again = pod.may_restart(verdict, ending=folder.has_notice())
                self._remaining_restarts = int(again)
            return result

    module: Any = launcher
    module.LocalElasticAgent = Agent


def fork_ranks_from(server: ForkServer) -> None:
    """Make torch's agent in this process fork the trainer's ranks; other programs are unaffected."""
    agent: Any = local_elastic_agent
    plain: Callable[..., PContext] = agent.start_processes

    def start(**options: Any) -> PContext:
        # Before torch sets its handlers: until ranks exist, SIGTERM ends the launcher immediately.
        if not is_trainer_command(options) or not server.wait_until_ready():
            return plain(**options)
        forked = {
            key: value
            for key, value in options.items()
            if key not in ("start_method", "numa_options")
        }
        context = ForkedContext(server, **forked)
        try:
            context.start()
        except Exception:
            context.close()
            if server.wait_until_ready():
                raise
            return plain(**options)
        return context

    agent.start_processes = start


def is_trainer_command(options: dict[str, Any]) -> bool:
    """Return whether torchrun starts `-m training.trainer` with options that a fork supports."""
    first = options["args"][0]
    return (
        options["entrypoint"] == sys.executable
        and tuple(first[:3]) == ("-u", "-m", PROGRAM)
        and options["numa_options"] is None
    )
