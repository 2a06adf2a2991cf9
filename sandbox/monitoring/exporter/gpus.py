"""GPUs of simulated nodes and the containers that hold them; pure."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from infra.domain import catalog, naming
from sandbox.node.api import Json

_NAMES: Final = uuid.UUID("6f1f0e2e-6d0c-4c60-9a5e-5f4e8a1f7a10")
_MEMORY_GIB: Final = 16
"""Memory of a GPU whose node has no known instance type."""
_FIRST_BUS: Final = 0x10


@dataclass(frozen=True, kw_only=True)
class Gpu:
    node: str
    index: int
    model: str
    memory_mib: int

    @property
    def labels(self) -> dict[str, str]:
        """Labels of every series of the GPU, in the order of dcgm-exporter 4.8."""
        return {
            "gpu": str(self.index),
            "UUID": f"GPU-{uuid.uuid5(_NAMES, f'{self.node}/{self.index}')}",
            "pci_bus_id": f"00000000:{_FIRST_BUS + self.index:02X}:00.0",
            "device": f"nvidia{self.index}",
            "modelName": self.model,
            "Hostname": self.node,
        }


@dataclass(frozen=True, kw_only=True)
class Holder:
    uid: str
    """Of its pod."""
    namespace: str
    pod: str
    container: str
    gpus: int

    @property
    def labels(self) -> dict[str, str]:
        """Labels that a GPU's series have while it is held."""
        return {"container": self.container, "namespace": self.namespace, "pod": self.pod}


def node_gpus(node: Json) -> list[Gpu]:
    """Return the GPUs in a simulated node's capacity; none for other nodes."""
    metadata = node["metadata"]
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    count = int((node.get("status") or {}).get("capacity", {}).get(naming.GPU, 0))
    if not {naming.NODE_RUNTIME, naming.KWOK_NODE} & annotations.keys():
        return []
    instance = catalog.load().types.get(labels.get(naming.INSTANCE_TYPE, ""))
    memory_gib = instance.gpu_memory_gib if instance else _MEMORY_GIB
    model = (instance.gpu_model if instance else "") or "simulated"
    return [
        Gpu(
            node=metadata["name"],
            index=index,
            model=f"NVIDIA {model.upper()}",
            memory_mib=memory_gib * 1024,
        )
        for index in range(count)
    ]


def gpu_holders(pods: Iterable[Json]) -> dict[str, list[Holder]]:
    """Return containers of running pods with GPUs by node, oldest pods first."""
    found: dict[str, list[Holder]] = {}
    running = [p for p in pods if (p.get("status") or {}).get("phase") == "Running"]
    for pod in sorted(running, key=_creation_order):
        for container in pod["spec"]["containers"]:
            resources = container.get("resources") or {}
            count = int((resources.get("limits") or {}).get(naming.GPU, 0))
            if count:
                node = pod["spec"]["nodeName"]
                found.setdefault(node, []).append(_holder(pod, container, count))
    return found


def _creation_order(pod: Json) -> tuple[str, str]:
    return pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]


def _holder(pod: Json, container: Json, count: int) -> Holder:
    return Holder(
        uid=pod["metadata"]["uid"],
        namespace=pod["metadata"]["namespace"],
        pod=pod["metadata"]["name"],
        container=container["name"],
        gpus=count,
    )


class Assignment:
    """Assigns GPUs to containers: a container keeps its GPUs while it runs."""

    def __init__(self) -> None:
        self._slots: dict[str, list[Holder | None]] = {}

    def update(
        self, gpus: Mapping[str, list[Gpu]], held: Mapping[str, list[Holder]]
    ) -> dict[Gpu, Holder]:
        """Return the holder of each GPU that is in use."""
        self._slots = {
            node: self._fill(node, len(found), held.get(node, [])) for node, found in gpus.items()
        }
        return {
            gpu: holder
            for node, found in gpus.items()
            for gpu, holder in zip(found, self._slots[node], strict=True)
            if holder is not None
        }

    def _fill(self, node: str, size: int, holders: list[Holder]) -> list[Holder | None]:
        before = self._slots.get(node, [])
        slots: list[Holder | None] = [one if one in holders else None for one in before[:size]]
        slots += [None] * (size - len(slots))
        for holder in holders:
            missing = holder.gpus - slots.count(holder)
            for index in [i for i, one in enumerate(slots) if one is None][: max(missing, 0)]:
                slots[index] = holder
        return slots
