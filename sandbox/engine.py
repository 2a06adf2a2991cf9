"""Run the Pulumi engine: on the local stack, and for previews of every stack."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sandbox import paths
from sandbox.reporting import Report, SandboxError

STACK = "local"
_SALT = re.compile(r"^encryptionsalt:.*\n", re.MULTILINE)
_ENCRYPTION_KEYS = re.compile(r"^(encryptionsalt|encryptedkey|secretsprovider):.*\n", re.MULTILINE)


class Engine:
    """Pulumi in the checkout, with the sandbox's environment variables (see `environment.py`)."""

    def __init__(self, state: paths.State, env: Mapping[str, str]) -> None:
        self._state = state
        self._env = dict(env)
        self._pulumi = str(state.bin / "pulumi")

    def ensure_stack(self, report: Report) -> None:
        """Create the stack if it is missing; release locks whose owner is dead."""
        if STACK not in self._stacks():
            self._run_captured("stack", "init", STACK)
        for owner in self._dead_lock_owners():
            report(f"an earlier pulumi (pid {owner}) was killed; its lock is released")
            self._run_captured("cancel", "--yes", "--stack", STACK)

    def up(self, config_file: Path | None = None) -> None:
        """Run `pulumi up` and show its output.

        Raises SandboxError: it failed; the text names the log of its output.
        """
        args = ["up", "--stack", STACK, "--yes", "--skip-preview", "--non-interactive"]
        args += ["--suppress-outputs"]
        if config_file is not None:
            args += ["--config-file", str(config_file)]
        log = self._state.logs / "pulumi-up.log"
        if self._run_shown(args, log) != 0:
            raise SandboxError(f"pulumi up failed; its output is in {log}")

    def preview(self, policies: Path) -> int:
        """Preview the local stack with a policy pack and show the output; return the exit code."""
        return self._run_shown(preview_arguments(STACK, policies), self._preview_log(STACK))

    def preview_new(self, stack: str, policies: Path, scratch: Path) -> int:
        """Preview another stack as new: its state is not available here. Return the exit code.

        The engine gets a copy of the stack file in `scratch`: it writes the salt of a passphrase into
        the file, and `stack init` removes a team's encryption key from it.
        """
        scratch.mkdir(parents=True, exist_ok=True)
        project = (paths.PROJECT / "Pulumi.yaml").read_text()
        (scratch / "Pulumi.yaml").write_text(project)
        if stack not in self._stacks():
            self._run_captured("stack", "init", stack, "--no-select", cwd=scratch)
        copy = scratch / f"Pulumi.{stack}.yaml"
        text = (paths.PROJECT / copy.name).read_text()
        copy.write_text(_ENCRYPTION_KEYS.sub("", text))
        arguments = [*preview_arguments(stack, policies), "--config-file", str(copy)]
        return self._run_shown(arguments, self._preview_log(stack))

    def outputs(self) -> dict[str, Any]:
        text = self._run_captured("stack", "output", "--json", "--stack", STACK)
        found: dict[str, Any] = json.loads(text)
        return found

    def _preview_log(self, stack: str) -> Path:
        return self._state.logs / f"pulumi-preview-{stack}.log"

    def _stacks(self) -> set[str]:
        listed = json.loads(self._run_captured("stack", "ls", "--json"))
        return {stack["name"].rsplit("/", 1)[-1] for stack in listed}

    def _run_shown(self, args: list[str], log: Path) -> int:
        """Run with output to the terminal and a log; forward Ctrl-C once, then wait."""
        log.parent.mkdir(parents=True, exist_ok=True)
        color = "always" if sys.stdout.isatty() else "never"
        with _without_salt(), log.open("w") as out:
            running = subprocess.Popen(
                [self._pulumi, *args, "--color", color],
                cwd=paths.PROJECT,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            assert running.stdout is not None
            try:
                for line in running.stdout:
                    out.write(line)
                    sys.stdout.write(line)
                    sys.stdout.flush()
                return running.wait()
            except KeyboardInterrupt:
                os.killpg(running.pid, signal.SIGINT)
                running.wait()
                raise

    def _run_captured(self, *args: str, cwd: Path = paths.PROJECT) -> str:
        command = [self._pulumi, *args, "--non-interactive"]
        with _without_salt():
            done = subprocess.run(
                command, cwd=cwd, env=self._env, capture_output=True, text=True, check=False
            )
        if done.returncode != 0:
            log = self._state.logs / "pulumi.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(done.stdout + done.stderr)
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise SandboxError(f"pulumi {' '.join(args[:2])} failed: {last} (full output: {log})")
        return done.stdout

    def _dead_lock_owners(self) -> list[int]:
        """Pids of dead processes on this machine that hold a lock of the stack."""
        folder = self._state.backend / ".pulumi" / "locks"
        owners = []
        for path in folder.rglob(f"{STACK}/*.json"):
            pid = int(json.loads(path.read_text()).get("pid", 0))
            if pid and not Path(f"/proc/{pid}").exists():
                owners.append(pid)
        return owners


@contextmanager
def _without_salt() -> Iterator[None]:
    strip_local_salt()
    try:
        yield
    finally:
        strip_local_salt()


def preview_arguments(stack: str, policies: Path) -> list[str]:
    """Arguments of a preview, as CI uses them; some stacks configure the policy pack."""
    config = policies / "stacks" / f"{stack}.json"
    configured = ["--policy-pack-config", str(config)] if config.exists() else []
    pack = ["--policy-pack", str(policies), *configured]
    return ["preview", "--stack", stack, *pack, "--non-interactive"]


def strip_local_salt() -> None:
    """Keep the salt of this machine's passphrase out of the committed stack file of the local stack.

    The engine writes `encryptionsalt` into the stack file, whichever command starts it; a committed
    salt breaks every other clone. The engine finds it in the stack's state, too
    (docs/adr/01-stacks-and-configuration.md).
    """
    file = paths.PROJECT / f"Pulumi.{STACK}.yaml"
    text = file.read_text() if file.exists() else ""
    without = _SALT.sub("", text)
    if without != text:
        partial = file.with_name(f".{file.name}.partial")
        partial.write_text(without)
        partial.rename(file)
