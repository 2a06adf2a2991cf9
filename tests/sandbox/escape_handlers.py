"""Attempts of probes and hooks to leave their container, each with an allowed handler of the same kind.

A handler of root in a container tries to make a read-only volume writable and to overwrite a file in it, then
writes what it may do into a writable volume: on a process node, files of the host are mounted in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

KEPT = "kept"
READ_ONLY, WRITABLE = "/read-only", "/writable"
FILE = "file"
DONE = "done"
"""File in the writable volume: capabilities and no_new_privs of the handler that has run."""
SEEN = "seen"
"""File in the writable volume until which a preStop hook waits: the volume goes with the container."""

OVERWRITE = (
    f"mount -o remount,bind,rw {READ_ONLY}; unshare -r true; echo taken > {READ_ONLY}/{FILE}; "
    f"grep -E '^(Cap|NoNew)' /proc/self/status > {WRITABLE}/new; mv {WRITABLE}/new {WRITABLE}/{DONE}"
)
READ = f"grep {KEPT} {READ_ONLY}/{FILE} && touch {WRITABLE}/{DONE}"
WITHOUT_PRIVILEGES = {
    "CapInh:\t0000000000000000",
    "CapPrm:\t0000000000000000",
    "CapEff:\t0000000000000000",
    "CapBnd:\t0000000000000000",
    "CapAmb:\t0000000000000000",
    "NoNewPrivs:\t1",
}


@dataclass(frozen=True)
class HandlerAttempt:
    """`kind`: where a container names its handler."""

    kind: str

    def main(self, script: str) -> Json:
        """Fields of a container that stays until it is deleted, and has `script` as handler."""
        handler: Json
        if self.kind == "preStop":
            wait = f"{script}; until test -e {WRITABLE}/{SEEN}; do sleep 0.1; done"
            handler = {"lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", wait]}}}}
        else:
            probe = {"exec": {"command": ["sh", "-c", script]}}
            handler = {self.kind: probe | {"periodSeconds": 1, "failureThreshold": 300}}
        begin = f"echo {KEPT} > {WRITABLE}/{FILE}; trap exit TERM; sleep 600 & wait"
        mounts = [
            {"name": "v", "mountPath": WRITABLE},
            {"name": "v", "mountPath": READ_ONLY, "readOnly": True},
        ]
        return {"command": ["sh", "-c", begin], "volumeMounts": mounts} | handler


def every() -> list[HandlerAttempt]:
    """Return one attempt of each kind; process nodes refuse pods with postStart or startupProbe."""
    kinds = ("readinessProbe", "livenessProbe", "preStop")
    return [HandlerAttempt(kind) for kind in kinds]
