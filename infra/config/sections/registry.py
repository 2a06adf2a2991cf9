"""The sections of the stack file in the order in which their issues are reported."""

from __future__ import annotations

from typing import Final

from infra.config.partial import Check
from infra.config.plaintext_secrets import check_plaintext_secrets
from infra.config.sections import (
    aws,
    cluster,
    costs,
    egress,
    elastic_runs,
    gpus,
    images,
    logs,
    network,
    node_pools,
    observability,
    operators,
    pool_nodes,
    pool_zones,
    run_page,
    scheduler,
    signatures,
    steering,
    storage,
    validation,
)
from infra.config.sections.teams import members, quotas, restore_drill, results, secrets, shares

SECTIONS: Final = (
    *(aws, cluster, network, pool_zones, node_pools, pool_nodes, storage),
    *(members, quotas, shares, secrets, restore_drill, results),
    *(scheduler, operators, gpus, images, egress, signatures, logs, observability, validation),
    *(run_page, costs, steering, elastic_runs),
)

CHECKS: Final[tuple[Check, ...]] = (
    *(check for section in SECTIONS for check in section.CHECKS),
    check_plaintext_secrets,
)
"""All checks of a stack file beyond the types of its values."""
