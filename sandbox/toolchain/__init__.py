"""Programs of the embedded cluster: found, downloaded or built once.

`tools.py` lists them; `lookup.py` searches PATH and the cache; `releases.py` says what upstream publishes, which
`download.py` gets; `builder.py` builds from the pinned Go modules in this folder
(`NAME/go.mod`, `NAME/go.sum`; `control-plane`: those of tools that share libraries); `ensure.py` combines these
and shows progress.
"""

from sandbox.toolchain.ensure import Toolchain, ToolchainError, ensure, ensure_for_runs, find
from sandbox.toolchain.tools import TEST_TOOLS

__all__ = ["TEST_TOOLS", "Toolchain", "ToolchainError", "ensure", "ensure_for_runs", "find"]
