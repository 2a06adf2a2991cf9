"""EKS node monitoring agent, an EKS add-on that infra/sites/aws/node_health.py configures."""

from __future__ import annotations

from typing import Final

from infra.addons.model import AddOn, Section

NODE_MONITORING_AGENT: Final = AddOn(
    # EKS installs the version that it recommends for the cluster's; see infra/sites/aws/addons.py.
    name="nodeMonitoringAgent",
    section=Section.NONE,
    version="",
    app_version="",
    namespace="kube-system",
    kubernetes=("1.28", ""),
)
