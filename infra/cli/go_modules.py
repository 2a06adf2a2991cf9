"""Files of Go modules, from Go's cache or its proxy."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import zipfile


def read(module: str, path: str) -> bytes:
    """Return a file of a module such as sigs.k8s.io/kueue@v0.19.2. Raises LookupError if it is not available."""
    go = shutil.which("go")
    if go is None:
        raise LookupError(f"{module}: `go` is not on PATH; install Go, or add its folder to PATH")
    with tempfile.TemporaryDirectory() as folder:
        command = [go, "mod", "download", "-json", module]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout or "{}")
    # The archive suffices, and exists even if the module requires a newer Go.
    if "Zip" not in answer:
        raise LookupError(f"{module}: {' '.join((answer.get('Error') or done.stderr).split())}")
    with zipfile.ZipFile(answer["Zip"]) as archive:
        return archive.read(f"{module}/{path}")
