"""Node health on EKS: one DCGM engine that is there, and repair that acts on what it finds."""

from __future__ import annotations

import pytest

from infra.domain.pools import Workload
from infra.sites.aws.addons import choose_version
from infra.sites.aws.node_health import NAME, monitoring_agent
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


def test_agent_version_is_the_first_offered_that_has_these_settings() -> None:
    agent = monitoring_agent((pools.SPOT,), ENGINE)
    assert agent.at_least == (1, 7, 1)
    offered = ["v1.5.1-eksbuild.1", "v1.10.0-eksbuild.2"]
    assert choose_version(NAME, agent.at_least, offered) == "v1.10.0-eksbuild.2"
    assert choose_version(NAME, agent.at_least, ["v1.7.1-eksbuild.1", "v2.0.0"]).startswith("v1.7")
    with pytest.raises(ValueError, match=r"EKS offers v1\.7\.0; its settings require v1\.7\.1"):
        choose_version(NAME, agent.at_least, ["v1.7.0", "v1.7.0"])


def test_pools_without_gpus_need_no_agent_settings() -> None:
    assert monitoring_agent((CPU,), ENGINE).settings == {}
    assert monitoring_agent((), "").settings == {}
