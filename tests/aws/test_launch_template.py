"""Launch templates: what an instance of a managed pool is like."""

from __future__ import annotations

import base64
import email
import shlex
from dataclasses import replace
from typing import Any

import pytest
import yaml

from infra.domain import catalog
from infra.domain.pools import Network, NodePool
from infra.sites.aws import efa
from infra.sites.aws import node_config as node_settings
from infra.sites.aws.efa import Interface, InterfaceType
from infra.sites.aws.imds_sidecar import MetadataAccess
from infra.sites.aws.node_pools import template_args
from infra.sites.aws.outputs import Place
from tests.aws import pools
from tests.aws.moto_cloud import Cloud, Deployed


@pytest.fixture
def place() -> Place:
    return pools.managed()[0]


@pytest.fixture
def made() -> Deployed:
    return pools.managed()[1]


def template(made: Deployed, pool: NodePool) -> Any:
    name = f"nodes-{pool.name}-template"
    return made.one("aws:ec2/launchTemplate:LaunchTemplate", name).inputs


def test_stack_may_allow_pods_to_reach_the_metadata_service(cloud: Cloud) -> None:
    place = replace(pools.place(cloud), metadata_access=MetadataAccess.PODS)
    metadata: Any = template_args(pools.SPOT, place, None).metadata_options
    assert metadata.http_put_response_hop_limit == 2
    assert metadata.http_tokens == "required"


def test_a_p5_node_has_32_efa_interfaces_of_one_card_each(made: Deployed) -> None:
    found = template(made, pools.ONDEMAND)["networkInterfaces"]
    places = [(one["networkCardIndex"], one["deviceIndex"]) for one in found]
    assert places == [(0, 0), (0, 1), *((card, 0) for card in range(1, 32))]
    assert [one["interfaceType"] for one in found] == ["interface", *["efa-only"] * 32]


@pytest.mark.parametrize("name", [t.name for t in catalog.load().types.values() if t.efa_cards])
def test_every_efa_type_gets_the_interfaces_of_the_catalog(name: str) -> None:
    row = catalog.load().types[name]
    primary, *others = efa.interfaces(pools.pool(instance_types=(name,), network=Network.EFA))
    assert primary == Interface(card=0, device=0, type=InterfaceType.ENA)
    assert [one.card for one in others] == list(row.efa_card_indexes)
    assert {one.type for one in others} == {InterfaceType.EFA_ONLY}
    assert len({(one.card, one.device) for one in (primary, *others)}) == row.efa_cards + 1


def test_mixed_efa_pool_uses_the_network_cards_common_to_its_types() -> None:
    mixed = pools.pool(instance_types=("p5.48xlarge", "p4d.24xlarge"), network=Network.EFA)
    assert len(efa.interfaces(mixed)) == 1 + 4


def test_pool_without_efa_has_no_efa_interfaces_on_capable_types() -> None:
    assert efa.interfaces(pools.SPOT) == (efa.PRIMARY,)


def test_capacity_block_uses_the_capacity_block_market(made: Deployed) -> None:
    data = template(made, pools.RESERVED)
    assert data["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert data["instanceType"] == "p5.48xlarge"
    assert data["capacityReservationSpecification"] == {
        "capacityReservationTarget": {"capacityReservationId": pools.BLOCK.id}
    }


def test_on_demand_reservation_is_targeted_without_market_options(made: Deployed) -> None:
    data = template(made, pools.IN_RESERVATION)
    assert data["capacityReservationSpecification"] == {
        "capacityReservationTarget": {"capacityReservationId": pools.HELD.id}
    }
    assert "instanceMarketOptions" not in data and "instanceType" not in data


def node_config(made: Deployed, pool: NodePool) -> Any:
    """Parse the NodeConfig out of the MIME document, as nodeadm does."""
    document = email.message_from_bytes(base64.b64decode(template(made, pool)["userData"]))
    parts = {part.get_content_type(): part for part in document.walk()}
    return yaml.safe_load(str(parts["application/node.eks.aws"].get_payload()))


def test_containers_on_gpu_nodes_may_lock_memory_for_efa(made: Deployed) -> None:
    spec = node_config(made, pools.SPOT)["spec"]["containerd"]["baseRuntimeSpec"]
    limits = {one["type"]: one for one in spec["process"]["rlimits"]}
    assert set(limits) == {"RLIMIT_NOFILE", "RLIMIT_MEMLOCK"}
    most = max(one.memory_gib for one in catalog.load().types.values()) << 30
    locked = limits["RLIMIT_MEMLOCK"]
    # nodeadm merges documents as JSON numbers, of which larger ones lose digits.
    assert most < locked["soft"] == locked["hard"] < 1 << 53
    assert limits["RLIMIT_NOFILE"]["soft"] == limits["RLIMIT_NOFILE"]["hard"] == 1 << 20


@pytest.mark.parametrize("source", ["template", "karpenter"])
def test_images_cannot_choose_their_gpus_on_gpu_nodes(made: Deployed, source: str) -> None:
    text = node_settings.mime_document(pools.SPOT, disks=False)
    if source == "template":
        text = base64.b64decode(template(made, pools.SPOT)["userData"]).decode()
    assert text
    # cloud-init runs scripts before nodeadm starts containerd and kubelet.
    _, script, _ = email.message_from_string(text).walk()
    assert script.get_content_type() == "text/x-shellscript"
    lines = str(script.get_payload()).splitlines()
    assert lines[0] == "#!/bin/bash"
    words = shlex.split("\n".join(lines[1:]))
    assert words[:3] == ["nvidia-ctk", "config", "--in-place"]
    assert dict(word.split("=") for word in words if "=" in word) == {
        "accept-nvidia-visible-devices-envvar-when-unprivileged": "false",
        "accept-nvidia-visible-devices-as-volume-mounts": "true",
    }
    assert node_settings.mime_document(pools.CPU) is None
