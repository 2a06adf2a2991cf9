"""Where controllers run: the taint and the label of system nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from infra.domain import naming
from infra.domain.pools import Taint

TAINT: Final = Taint(key="CriticalAddonsOnly", value="true")
"""The key is a convention of Kubernetes, which add-ons of EKS tolerate."""
TOLERATIONS: Final = ({"key": TAINT.key, "operator": "Exists"},)
LABELS: Final = {naming.NODE_TYPE: naming.SYSTEM_NODES}
"""On EKS every controller selects it; other clusters may have no system nodes."""
PLACEMENT: Final[Mapping[str, Any]] = {
    "tolerations": list(TOLERATIONS),
    "nodeSelector": dict(LABELS),
}
"""Both, as in the spec of a pod."""
