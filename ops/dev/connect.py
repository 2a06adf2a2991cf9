"""Connections to a dev pod by kubectl, with the caller's own credentials."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final

from ops.cluster import ClusterError
from ops.dev.session import ACTIVITY
from ops.dev.sessions import DevSession

SHELL: Final = (
    "sh",
    "-c",
    'mkdir -p "$HOME" && cd "$HOME" && if command -v bash >/dev/null; then exec bash -l; else exec sh -l; fi',
)
_IN_USE: Final = "import socket, sys; sys.exit(socket.socket().connect_ex(('127.0.0.1', {port})))"


def _serve(port: int, serve: str, shown: str) -> tuple[int, str]:
    """Return the port, and a command that serves it or shows what does: a server may outlive its connection."""
    found = f'python3 -c "{_IN_USE.format(port=port)}"'
    return port, f"if {found}; then {shown}; exec sleep infinity; else exec {serve}; fi"


PROGRAMS: Final = {
    "jupyter": _serve(
        8888,
        "jupyter lab --ip 127.0.0.1 --port 8888 --ServerApp.port_retries=0 --no-browser",
        "jupyter lab list",
    ),
    "vscode": _serve(
        8080,
        "code-server --bind-addr 127.0.0.1:8080",
        "echo 'port 8080: code-server runs already'",
    ),
}
"""By name: port, and the command that serves it with a password or token of its own."""
_HOME: Final = (
    'cd "$HOME" && PATH="$HOME/.local/bin:$PATH" && { [ ! -r .profile ] || . ./.profile; } && '
)
"""Not a login shell: that reads /etc/profile, too, which replaces the PATH of the image."""
_TOUCH_S: Final = 60.0


def kubectl(args: argparse.Namespace, namespace: str) -> list[str]:
    """Return kubectl with the options of this command. Raises ClusterError without kubectl."""
    found = shutil.which("kubectl")
    if found is None:
        raise ClusterError(
            "kubectl: not found in PATH; connections to dev pods require it; install kubectl"
        )
    words = [found, "--namespace", namespace]
    if args.kubeconfig:
        words += ["--kubeconfig", str(args.kubeconfig)]
    if args.context:
        words += ["--context", args.context]
    return words


def shell(args: argparse.Namespace, session: DevSession, command: Sequence[str]) -> int:
    """Run a command, or an interactive shell, in the pod; return its exit code."""
    tty = ["-t"] if sys.stdin.isatty() and sys.stdout.isatty() else []
    words = kubectl(args, session.namespace)
    return subprocess.call([*words, "exec", "-i", *tty, session.pod, "--", *(command or SHELL)])


def forward(args: argparse.Namespace, session: DevSession, ports: str, program: str) -> int:
    """Forward a port until Ctrl-C or the end of the pod; with a program, run that in the pod meanwhile.

    `ports`: as kubectl's: PORT, or LOCAL:PORT. Return the exit code of what ended first.
    """
    words = kubectl(args, session.namespace)
    served = [*words, "exec", "-i", session.pod, "--", "sh", "-c", f"{_HOME}{program}"]
    with contextlib.ExitStack() as stack:
        if program:
            server = stack.enter_context(_running(served, stdin=subprocess.DEVNULL))
        forwarded = stack.enter_context(
            _running(
                [*words, "port-forward", session.pod, ports], stdout=subprocess.PIPE, text=True
            )
        )
        threading.Thread(
            target=_mark_activity, args=(forwarded, words, session.pod), daemon=True
        ).start()
        if program:
            code = int(server.wait())
            if code == 127:
                print(
                    "error: the program is not in the pod's image; install it into your home folder "
                    "(docs/work-interactively.md says how), or use --image",
                    file=sys.stderr,
                )
            return code
        return int(forwarded.wait())


@contextlib.contextmanager
def _running(words: Sequence[str], **options: object) -> Iterator[subprocess.Popen[str]]:
    process: subprocess.Popen[str] = subprocess.Popen(words, **options)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _mark_activity(forwarded: subprocess.Popen[str], words: Sequence[str], pod: str) -> None:
    """Print what kubectl says, and tell the pod about new connections: it is not idle."""
    assert forwarded.stdout is not None
    touched = -_TOUCH_S
    shown = 0
    for line in forwarded.stdout:
        connected = line.startswith("Handling connection")
        if not connected or not shown:
            print(line.rstrip(), flush=True)
        shown += connected
        if connected and time.monotonic() - touched >= _TOUCH_S:
            touched = time.monotonic()
            subprocess.run(
                [*words, "exec", pod, "--", "touch", ACTIVITY],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
