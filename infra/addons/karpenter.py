"""Karpenter, which infra/sites/aws/karpenter.py installs: the controller's chart and that of its CRDs."""

from __future__ import annotations

from typing import Final

from infra.addons.model import WHOLE, AddOn, ChartSource, Image, Section
from infra.domain import naming

KARPENTER: Final = AddOn(
    name="karpenter",
    section=Section.AUTOSCALER,
    # EFA interfaces and placement groups in a node class came with 1.11.
    chart="oci://public.ecr.aws/karpenter/karpenter",
    version="1.15.0",
    app_version="1.15.0",
    toolchain="1.15.0",
    # The API server's fairness rules treat leases of this namespace as system traffic.
    namespace="kube-system",
    kubernetes=("1.26", "1.37"),
    apis={
        "NodePool": naming.KARPENTER_NODE_POOL_API,
        "EC2NodeClass": naming.KARPENTER_NODE_CLASS_API,
    },
    images=(
        Image(
            registry="public.ecr.aws",
            repository="karpenter/controller",
            tag="1.15.0",
            values={"controller.image.repository": WHOLE},
        ),
    ),
    chart_source=ChartSource(
        module="github.com/aws/karpenter-provider-aws", path="charts/karpenter"
    ),
)

KARPENTER_CRD: Final = AddOn(
    # A release of its own: the other chart contains the CRDs, but never upgrades them.
    name="karpenterCrd",
    section=Section.AUTOSCALER,
    chart="oci://public.ecr.aws/karpenter/karpenter-crd",
    version=KARPENTER.version,
    app_version=KARPENTER.app_version,
    namespace=KARPENTER.namespace,
    kubernetes=KARPENTER.kubernetes,
)
