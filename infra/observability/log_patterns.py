"""Named regular expressions for log lines of runs. `trainyard run why` searches logs for them.

The log shipper counts matches of those in COUNTED, in
`trainyard_log_matches_total{pattern, namespace, pod, run_id}`. The expressions use the common subset of
Python's `re`, RE2 and Onigmo (fluent-bit): no look-around, no back-references, no flags. They match anywhere
in a line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final


@dataclass(frozen=True, kw_only=True)
class LogPattern:
    name: str
    """The value of the label `pattern`."""
    expression: str
    meaning: str
    """What such a line means for the run, without a full stop."""

    def found_in(self, line: str) -> bool:
        return _compiled(self.expression).search(line) is not None


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression)


_ALL: Final = (
    LogPattern(
        name="rank-named",
        expression=r"trainyard-culprit \{.symptom.: .(hung|corrupt-rank).",
        meaning="a rank was named that hangs or computes wrong values",
    ),
    LogPattern(
        name="no-progress",
        expression=r"launch: no progress for [0-9]+ s",
        meaning="the run's ranks were ended because they reported nothing more",
    ),
    LogPattern(
        name="nccl-timeout",
        expression=r"Watchdog caught collective operation timeout"
        r"|NCCL (operation|communicator).{0,80}(timed out|timeout)"
        r"|ncclRemoteError|ncclSystemError|NCCL WARN .{0,80}(timed out|Connection (refused|closed))",
        meaning="NCCL gave up on a collective or on a peer",
    ),
    LogPattern(
        name="collective-timeout",
        expression=r"another rank is gone or hangs"
        r"|\[[^\]]*gloo/transport[^\]]*\].{0,80}(Timed out|Connection (closed|reset))"
        r"|Timed out waiting [0-9]+ms for (recv|send) operation",
        meaning="a rank timed out waiting for the others",
    ),
    LogPattern(
        name="rendezvous-failed",
        expression=r"the nodes did not meet"
        r"|RendezvousTimeoutError|RendezvousConnectionError|RendezvousClosedError"
        r"|client socket has (timed out|failed to connect)"
        r"|The (server|client) socket .{0,40}(timed out|failed to (listen|connect))",
        meaning="the rendezvous of the run's processes failed",
    ),
    LogPattern(
        name="cuda-out-of-memory",
        expression=r"CUDA out of memory|torch\.(cuda\.)?OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED",
        meaning="a GPU has too little memory for the model and the batch",
    ),
    LogPattern(
        name="cuda-error",
        expression=r"CUDA error: |CUDNN_STATUS_[A-Z_]*(ERROR|FAILED)|uncorrectable (NVLink|ECC) error",
        meaning="a GPU or its driver failed",
    ),
    LogPattern(
        name="driver-mismatch",
        expression=r"Failed to initialize NVML|NVIDIA-SMI has failed"
        r"|CUDA driver version is insufficient|no CUDA-capable device is detected",
        meaning="the container cannot use the node's GPU driver",
    ),
    LogPattern(
        name="restore-failed",
        expression=r"none of the [0-9]+ checkpoints can be loaded",
        meaning="none of the run's checkpoints can be restored",
    ),
    LogPattern(
        name="checkpoint-failed",
        expression=r"checkpoint not written: ",
        meaning="a checkpoint could not be written; the previous one remains the newest",
    ),
    LogPattern(
        name="no-space",
        expression=r"No space left on device|Disk quota exceeded",
        meaning="a volume is full",
    ),
    LogPattern(
        name="loss-not-finite",
        expression=r"(loss|gradient norm) is (nan|-?inf);",
        meaning="the loss is NaN or infinite",
    ),
)

LOG_PATTERNS: Final[Mapping[str, LogPattern]] = {pattern.name: pattern for pattern in _ALL}
"""By name, in order of precedence: the first match is the most likely cause."""


COUNTED: Final = ("nccl-timeout", "collective-timeout")
"""Patterns that become metrics: ranks in a collective that has timed out report nothing themselves."""


def names_in(line: str) -> tuple[str, ...]:
    return tuple(name for name, pattern in LOG_PATTERNS.items() if pattern.found_in(line))
