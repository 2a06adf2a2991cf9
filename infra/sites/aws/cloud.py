"""AWS as the cloud of a stack. Plain data: importing this does not load pulumi_aws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.domain import naming
from infra.domain.cloud import PodAdditions
from infra.sites.aws import imds_sidecar, secret_access


@dataclass(frozen=True, kw_only=True)
class Aws:
    """Implements `infra.domain.cloud.Cloud`."""

    region: str
    account: str
    cluster: str
    notice_sidecar: bool
    """Whether pods of runs poll the instance metadata service for interruption notices."""

    @property
    def node_services(self) -> tuple[str, ...]:
        """Pod Identity's agent, and the metadata service for the sidecar."""
        metadata = (imds_sidecar.IMDS_ADDRESS,) if self.notice_sidecar else ()
        return (naming.POD_IDENTITY_AGENT, *metadata)

    @property
    def pod_additions(self) -> PodAdditions:
        return imds_sidecar.pod_additions() if self.notice_sidecar else {}

    def secret_store(self, team: str) -> Mapping[str, Any]:
        """Return Secrets Manager as a provider, through the role that reads the team's secrets."""
        role = secret_access.reader_arn(self.account, self.cluster, team)
        return {"aws": {"service": "SecretsManager", "region": self.region, "role": role}}
