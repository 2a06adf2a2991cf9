"""The admission policies of team namespaces as Pulumi resources."""

from __future__ import annotations

import pulumi

from infra.domain import naming
from infra.kubernetes.admission_policy import binding
from infra.kubernetes.resources import KubernetesObject
from infra.tenancy.admission import AdmissionPoliciesArgs, policies


class AdmissionPolicies(pulumi.ComponentResource):
    """All policies with their bindings. Teams depend on them, so no namespace is ever without them."""

    def __init__(
        self, name: str, args: AdmissionPoliciesArgs, opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__(naming.infra_type("AdmissionWalls"), name, None, opts)
        found = policies(args)
        for manifest in found:
            own = manifest["metadata"]["name"].removeprefix(f"{naming.PROJECT}-")
            policy = KubernetesObject(
                f"{name}-{own}", manifest, pulumi.ResourceOptions(parent=self)
            )
            KubernetesObject(
                f"{name}-{own}-binding",
                binding(manifest),
                pulumi.ResourceOptions(parent=self, depends_on=[policy]),
            )
        self.register_outputs({"policies": [manifest["metadata"]["name"] for manifest in found]})
