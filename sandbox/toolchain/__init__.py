"""The programs that the embedded cluster is made of, found or built once.

`tools.py` says which and how; `lookup.py` looks on PATH and in the cache; `builder.py` builds what is
missing from the pinned Go modules beside this file (`NAME/go.mod`, `NAME/go.sum`); `official.py` tries
the vendor's own Pulumi first; `ensure.py` puts it together and shows progress.
"""

from sandbox.toolchain.ensure import Toolchain, ToolchainError, ensure

__all__ = ["Toolchain", "ToolchainError", "ensure"]
