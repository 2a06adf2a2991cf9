"""`python -m tools.record_image DIGEST LABELS [--repository REPOSITORY]`: record what an image declares.

LABELS is a JSON file with the image's labels: `docker buildx imagetools inspect REPOSITORY@DIGEST --format
'{{json .Image}}'` prints them at `config.Labels`. Writes training/image/images.yaml; with a repository, also sets
the digest in every stack file that names an image of it. Exit 0, or 1 and one line. Needs the standard library
only, so that the workflow `image` installs nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

RECORD: Final = "training/image/images.yaml"
LABEL: Final = "dev.trainyard.image."
KEYS: Final = ("architectures", "commit", "compiler", "cuda", "efa", "mpi")
"""Keys of an entry, all strings. `commit` is org.opencontainers.image.revision."""
_REVISION: Final = "org.opencontainers.image.revision"
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


class RecordError(Exception):
    """The labels or the digest cannot be recorded."""


def with_entry(record: str, digest: str, labels: Mapping[str, str]) -> str:
    """Return the record's text with the entry of one image, replaced or added at the end. Raises RecordError."""
    if not _DIGEST.fullmatch(digest):
        raise RecordError(f"DIGEST: got {digest[:80]!r}; must be sha256: and 64 hexadecimal digits")
    declared = {key: labels.get(f"{LABEL}{key}", "") for key in KEYS}
    declared["commit"] = labels.get(_REVISION, "")
    if not any(value for key, value in declared.items() if key != "commit"):
        raise RecordError(f"LABELS: no label {LABEL}...; one of {', '.join(KEYS)} is required")
    # A JSON string is a YAML string.
    lines = [f"  {key}: {json.dumps(value)}\n" for key, value in declared.items() if value]
    kept = re.sub(rf"^{digest}:\n(?:  .*\n)*", "", record, flags=re.MULTILINE)
    return kept + f"{digest}:\n" + "".join(lines)


def with_digest(stack: str, repository: str, digest: str) -> str:
    """Return a stack file's text with the digest of the images of one repository."""
    return re.sub(
        rf"(?<=[\s\"']){re.escape(repository)}@sha256:[0-9a-f]{{64}}",
        f"{repository}@{digest}",
        stack,
    )


def main(arguments: Sequence[str] | None = None, root: Path = Path()) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.record_image", description=__doc__)
    parser.add_argument("digest", metavar="DIGEST")
    parser.add_argument("labels", type=Path, metavar="LABELS")
    parser.add_argument(
        "--repository", help="such as 111122223333.dkr.ecr.us-east-1.amazonaws.com/trainer"
    )
    chosen = parser.parse_args(arguments)
    try:
        labels = json.loads(chosen.labels.read_text(encoding="utf-8"))
        if not isinstance(labels, dict):
            raise RecordError(f"LABELS: {chosen.labels}: must be a JSON object of labels")
        record = root / RECORD
        record.write_text(with_entry(record.read_text(encoding="utf-8"), chosen.digest, labels))
    except (OSError, ValueError, RecordError) as error:
        print(error, file=sys.stderr)
        return 1
    for stack in sorted(root.glob("Pulumi.*.yaml")) if chosen.repository else ():
        before = stack.read_text(encoding="utf-8")
        after = with_digest(before, chosen.repository, chosen.digest)
        if after != before:
            stack.write_text(after, encoding="utf-8")
            print(f"{stack.name}: {chosen.repository}@{chosen.digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
