"""kube-scheduler reads a PodGroup, which pods name in their spec; a single pod needs none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from infra.domain.platform import Platform
from infra.kubernetes.objects import Manifest
from training.gangs import GangBackend, Membership, pod_group
from training.spec import RunSpec


class NativeGangs(GangBackend):
    """A PodGroup per run of several nodes."""

    def membership(
        self,
        run: RunSpec,
        platform: Platform,
        pod: Mapping[str, Any],
        requests: Mapping[str, str],
    ) -> Membership:
        """Return the reference to the group."""
        if run.nodes == 1:
            return Membership()
        return Membership(spec={"schedulingGroup": {"podGroupName": run.run_id}})

    def groups(
        self,
        run: RunSpec,
        platform: Platform,
        labels: Mapping[str, str],
        requests: Mapping[str, str],
    ) -> list[Manifest]:
        """Return the PodGroup, in the API of the cluster's version."""
        if run.nodes == 1:
            return []
        spec = {"schedulingPolicy": {"gang": {"minCount": run.nodes}}}
        return [pod_group(platform.gang_api, run, platform, labels, spec)]


BACKEND: Final = NativeGangs()
