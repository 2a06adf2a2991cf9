"""How ranks tell the process that started them what they found: files in a folder of this node."""

from __future__ import annotations

from typing import Final

RESULTS_ENV: Final = "TRAINYARD_VALIDATION_RESULTS"
"""The folder."""
OUTCOME: Final = "outcome.json"
"""What the first rank of the node found: `finding` and `facts`."""
FAILED: Final = "failed-"
"""Begins the name of a file with why a rank failed; its number follows."""
