"""All rules of the pack, in the order in which they report."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from .budget import HOURLY_BUDGET
from .cluster import INSTANCE_METADATA
from .efa import EFA_INTERFACES, EFA_ONE_ZONE
from .encryption import ENCRYPTION_AT_REST
from .exposure import NO_PUBLIC_ENDPOINTS
from .gpu_pools import GPU_POOL_TAINTS, SPOT_INSTANCE_TYPES
from .gpu_sharing import TIME_SLICING
from .images import IMAGES_BY_DIGEST
from .model import Config, Rule, Violation
from .production_spot import SPOT_FOR_PRODUCTION
from .quota import QUOTA_FITS_POOLS
from .run_documents import RUN_DOCUMENTS
from .storage import BUCKET_SETTINGS, PROTECTED_STATE
from .tags import AWS_TAGS

RULES: Final[tuple[Rule, ...]] = (
    IMAGES_BY_DIGEST,
    GPU_POOL_TAINTS,
    SPOT_INSTANCE_TYPES,
    QUOTA_FITS_POOLS,
    TIME_SLICING,
    SPOT_FOR_PRODUCTION,
    RUN_DOCUMENTS,
    EFA_INTERFACES,
    EFA_ONE_ZONE,
    INSTANCE_METADATA,
    NO_PUBLIC_ENDPOINTS,
    ENCRYPTION_AT_REST,
    BUCKET_SETTINGS,
    PROTECTED_STATE,
    AWS_TAGS,
    HOURLY_BUDGET,
)


def unknown_properties(rule: Rule, config: Config) -> Iterable[Violation]:
    """Yield configured properties that the rule does not have, which the engine's schema check accepts."""
    for key in sorted(set(config) - set(rule.schema)):
        close = difflib.get_close_matches(key, rule.schema, n=1)
        yield Violation(
            path=f"policy configuration: {rule.name}.{key}",
            got="an unknown property",
            expected=", ".join(["enforcementLevel", *sorted(rule.schema)]),
            remedy=f"did you mean {close[0]}?" if close else "remove it",
        )
