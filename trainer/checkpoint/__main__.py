"""List, verify, explain, export and restore the checkpoints of a run.

DIR is a run directory, its `checkpoints` folder or one `step-...` folder, local or s3://BUCKET/PREFIX.
Exit codes: 0 ok, 1 a checkpoint is corrupt, 2 no checkpoint found, one that this installation cannot
read, or OUT not writable. Only export and drill load torch.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from pathlib import Path

from trainyard.objects.location import BadLocation
from trainyard.store.factory import find_checkpoints
from trainyard.store.interface import CheckpointStore, folder_name
from trainyard.store.manifest import CorruptCheckpoint, Manifest, UnknownFormat

_FOUND, _CORRUPT, _NOTHING = 0, 1, 2


def main() -> int:
    """Run one command; returns the exit code."""
    arguments = _parse()
    try:
        store, steps = find_checkpoints(arguments.dir)
        if steps:
            return _run(arguments, store, steps)
        problem = "no checkpoints found; name a run directory"
    except (BadLocation, OSError, UnknownFormat) as error:
        problem = str(error)
    print(f"{arguments.dir}: {problem}", file=sys.stderr)
    return _NOTHING


def _run(arguments: argparse.Namespace, store: CheckpointStore, steps: list[int]) -> int:
    if arguments.command == "list":
        return _list(store, steps, store.last_known_good())
    if arguments.command == "verify":
        return _verify(store, steps)
    try:
        if arguments.command == "explain":
            return _explain(store, steps[-1], as_json=arguments.json)
        return _copy(arguments.command, store, steps[-1], arguments.out)
    except CorruptCheckpoint as error:
        print(f"{folder_name(steps[-1])}: corrupt: {error}", file=sys.stderr)
        return _CORRUPT


def _copy(command: str, store: CheckpointStore, step: int, out: Path) -> int:
    # Only here: torch takes a second to load.
    from trainer.checkpoint.restore import RestoreError, export_model, run_drill

    begun = time.monotonic()
    try:
        if command == "export":
            export_model(store, step, out)
            print(f"{folder_name(step)}: model written to {out}")
            return _FOUND
        done = run_drill(store, step, out)
    except (RestoreError, OSError) as error:
        print(f"{folder_name(step)}: {error}", file=sys.stderr)
        return _NOTHING
    print(
        f"{folder_name(step)}: {done.tensors} tensors, {done.bytes / 1e6:.1f} MB restored "
        f"to {out} in {time.monotonic() - begun:.1f} s, all hashes match"
    )
    return _FOUND


def _list(store: CheckpointStore, steps: list[int], good: int | None) -> int:
    code = _FOUND
    print(f"{'step':>10}  {'MB':>9}  {'held-out loss':>13}  {'ranks':>5}  {'saved':19}  reason")
    for step in steps:
        try:
            manifest = store.manifest(step)
        except CorruptCheckpoint as error:
            print(f"{step:>10}  corrupt: {error}")
            code = _CORRUPT
            continue
        loss = manifest.evaluation_loss
        print(
            f"{step:>10}  {manifest.bytes / 1e6:>9.1f}  {'-' if loss is None else f'{loss:.4f}':>13}"
            f"  {manifest.world_size:>5}  {_when(manifest):19}  {manifest.reason}"
            + (", milestone" if manifest.milestone else "")
            + (", last known good" if step == good else "")
        )
    return code


def _verify(store: CheckpointStore, steps: list[int]) -> int:
    code = _FOUND
    for step in steps:
        issues = store.verify(step)
        for issue in issues:
            print(f"{folder_name(step)}: corrupt: {issue}")
            code = _CORRUPT
        if not issues:
            manifest = store.manifest(step)
            megabytes = manifest.bytes / 1e6
            print(f"{folder_name(step)}: ok, {len(manifest.files)} files, {megabytes:.1f} MB")
    return code


def _explain(store: CheckpointStore, step: int, *, as_json: bool) -> int:
    manifest = store.manifest(step)
    if as_json:
        print(manifest.to_json(), end="")
        return _FOUND
    print(f"{store.place}/{folder_name(step)}")
    for name, value in _facts(manifest):
        print(f"  {name:20} {value}")
    return _FOUND


def _facts(manifest: Manifest) -> list[tuple[str, str]]:
    run, process = manifest.run, dict(manifest.trainer)
    metadata = process.pop("metadata", {})
    recorded = [(key, run[key]) for key in sorted(run)]
    facts = [
        ("step", manifest.step),
        ("saved", f"{_when(manifest)} ({manifest.reason})"),
        ("held-out loss", manifest.evaluation_loss),
        ("attempt", manifest.attempt),
        ("world size", manifest.world_size),
        *sorted(metadata.items()),
        *sorted(process.items()),
        *((f"run: {key}", value) for key, value in recorded),
        ("files", f"{len(manifest.files)}, {manifest.bytes / 1e6:.1f} MB"),
        ("hashes", ", ".join(sorted({one.algorithm for one in manifest.files.values()}))),
    ]
    return [
        (name, value if isinstance(value, str) else json.dumps(value, sort_keys=True))
        for name, value in facts
    ]


def _when(manifest: Manifest) -> str:
    moment = datetime.datetime.fromtimestamp(manifest.saved_at, tz=datetime.UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m trainer.checkpoint",
        description="Inspect, verify, export and restore the checkpoints of a run.",
        epilog="example:\n  python -m trainer.checkpoint verify runs/hello-v1",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, what in (
        ("list", "list checkpoints, one line each"),
        ("verify", "read every file and compare it with its recorded hash"),
        ("explain", "show the manifest of the newest checkpoint: step, commit, dataset, settings"),
        ("export", "write the newest model for transformers' from_pretrained"),
        ("drill", "restore the newest checkpoint to a scratch folder and compare every tensor"),
    ):
        command = commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        command.add_argument("dir", metavar="DIR", help="run directory, step folder or s3://...")
        if name == "explain":
            command.add_argument("--json", action="store_true", help="print manifest.json")
        if name == "export":
            command.add_argument("out", type=Path, metavar="OUT", help="new or empty output folder")
        if name == "drill":
            command.add_argument(
                "--scratch",
                dest="out",
                type=Path,
                metavar="DIR",
                required=True,
                help="new or empty folder to restore into",
            )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
