"""kube-scheduler reads a PodGroup, which pods name in their spec; a single pod needs none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from infra.kubernetes.objects import Manifest
from training.gangs import Gang, GangBackend, Membership


class NativeGangs(GangBackend):
    """A PodGroup per run of several nodes."""

    def membership(self, gang: Gang, pod: Mapping[str, Any]) -> Membership:
        if gang.run.nodes == 1:
            return Membership()
        return Membership(spec={"schedulingGroup": {"podGroupName": gang.run.run_id}})

    def groups(self, gang: Gang, labels: Mapping[str, str]) -> list[Manifest]:
        """Return the PodGroup, in the API of the cluster's version."""
        if gang.run.nodes == 1:
            return []
        spec = {"schedulingPolicy": {"gang": {"minCount": gang.run.nodes}}}
        return [gang.group(gang.platform.gang_api, labels, spec)]


BACKEND: Final = NativeGangs()
