"""Node health on EKS: one DCGM engine that is there, and repair that acts on what it finds."""

from __future__ import annotations

from infra.cli.addon_settings import semver
from infra.domain.pools import Workload
from infra.sites.aws import addon_versions
from infra.sites.aws.node_health import FIRST_VERSION, NAME, monitoring_agent
from tests.aws import pools

ENGINE = "nvidia-dcgm.gpu-operator.svc:5555"

CPU = pools.pool(workload=Workload.CPU, instance_types=("m6i.xlarge",))


def test_agent_dcgm_engine_tolerates_our_taints() -> None:
    settings = monitoring_agent((pools.SPOT, pools.ONDEMAND, CPU), "").settings
    assert settings == {
        "dcgmAgent": {
            "tolerations": [
                {
                    "key": "dedicated",
                    "operator": "Equal",
                    "value": "gpu-training",
                    "effect": "NoSchedule",
                },
                {"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"},
            ]
        }
    }


def test_agent_uses_an_existing_dcgm_engine() -> None:
    assert monitoring_agent((pools.SPOT,), ENGINE).settings == {
        "dcgmAgent": {"enabled": False},
        "nodeAgent": {"dcgmAddress": ENGINE, "dnsPolicy": "ClusterFirstWithHostNet"},
    }


def test_pinned_agent_has_these_settings_in_its_schema() -> None:
    for versions in addon_versions.load().values():
        assert semver(versions[NAME]) >= FIRST_VERSION


def test_pools_without_gpus_need_no_agent_settings() -> None:
    assert monitoring_agent((CPU,), ENGINE).settings == {}
    assert monitoring_agent((), "").settings == {}
