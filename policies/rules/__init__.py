"""Rules over the resources of a stack, with the names and the arithmetic of infra.domain in the same checkout."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
