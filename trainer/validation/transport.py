"""The network that NCCL really used, from its own log.

NCCL has no call that tells it. With NCCL_DEBUG=INFO every process logs `Using network NAME` when it makes its
first communicator, and AWS's plugin logs libfabric's provider. Both go to one file per process here, because
NCCL writes to standard output and lines of several ranks mix.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

LOG_ENV: Final = "NCCL_DEBUG_FILE"
_LOG: Final = "nccl-{pid}.log"

_NETWORK: Final = re.compile(r"NCCL INFO Using network (.+)")
_PROVIDER: Final = re.compile(
    r"NET/OFI Selected provider is (.+?)(?:,| \(|$)", re.IGNORECASE | re.MULTILINE
)


def log_environment(folder: Path) -> dict[str, str]:
    """Return the variable that has each process write NCCL's log to a file of `folder`."""
    return {LOG_ENV: str(folder / _LOG.format(pid="%p"))}


def used_here(environment: Mapping[str, str] = os.environ) -> str:
    """Return this process' transport after its first collective, and copy NCCL's log to standard error.

    See `transport_of`. Empty where NCCL was not used.
    """
    pattern = environment.get(LOG_ENV, "")
    file = Path(pattern.replace("%p", str(os.getpid())))
    if not pattern or not file.is_file():
        return ""
    log = file.read_text(errors="replace")
    sys.stderr.write(log)
    return transport_of(log)


def transport_of(log: str) -> str:
    """Return `efa`, `libfabric over PROVIDER`, `ib` (InfiniBand and RoCE), or NCCL's name of another: `socket`.

    Empty if the log names none. The last communicator counts. `IBext_v8` and the like are NVIDIA's plugin for IB.
    Wording as in published logs of NCCL 2.4 to 2.27; a later one that differs reads as empty, never as `efa`.
    """
    networks = [line.strip().lower() for line in _NETWORK.findall(log)]
    if not networks:
        return ""
    if "libfabric" not in networks[-1]:
        return "ib" if networks[-1].startswith("ib") else networks[-1]
    providers = [line.strip().lower() for line in _PROVIDER.findall(log)]
    provider = providers[-1] if providers else "an unknown provider"
    # `efa`, or `efa-direct` by its fabric; `efa;ofi_rxr` in old releases.
    return "efa" if provider.startswith("efa") else f"libfabric over {provider}"
