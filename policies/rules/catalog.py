"""All rules of the pack, in the order in which they report."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from .grace import GRACE_BUDGET, GRACE_OF_RUNS
from .images import IMAGES_BY_DIGEST
from .model import Config, Rule, Violation
from .placement import GPU_PLACEMENT
from .pools import GPU_POOL_TAINTS
from .quota import QUOTA_FITS_POOLS

RULES: Final[tuple[Rule, ...]] = (
    IMAGES_BY_DIGEST,
    GPU_PLACEMENT,
    GPU_POOL_TAINTS,
    GRACE_BUDGET,
    GRACE_OF_RUNS,
    QUOTA_FITS_POOLS,
)


def unknown_properties(rule: Rule, config: Config) -> Iterable[Violation]:
    """Configured properties that the rule does not have; the engine's schema check allows them."""
    for key in sorted(set(config) - set(rule.schema)):
        close = difflib.get_close_matches(key, rule.schema, n=1)
        yield Violation(
            path=f"policy configuration: {rule.name}.{key}",
            got="an unknown property",
            allowed=", ".join(["enforcementLevel", *sorted(rule.schema)]),
            remedy=f"did you mean {close[0]}?" if close else "remove it",
        )
