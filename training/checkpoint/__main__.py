"""`python -m training.checkpoint list|verify|explain DIR`: what is there, whether it is whole, what made it.

DIR is a run directory, its `checkpoints` folder, or one `step-...` folder. Exit 0 when all is well,
1 when something is corrupt, 2 when there is nothing to look at. Loads no torch.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path

from training.checkpoint.known_good import last_known_good
from training.checkpoint.manifest import MANIFEST_FILE, CorruptCheckpoint, Manifest
from training.checkpoint.posix import PosixStore
from training.checkpoint.store import folder_name, step_of
from training.spec import CHECKPOINTS_DIR

_FOUND, _CORRUPT, _NOTHING = 0, 1, 2


def main() -> int:
    """Parse, find the checkpoints, do what was asked."""
    arguments = _parse()
    root, steps = _find(arguments.dir)
    if not steps:
        print(f"{arguments.dir}: no checkpoints here", file=sys.stderr)
        return _NOTHING
    store = PosixStore(root)
    if arguments.command == "list":
        return _list(store, steps, last_known_good(root))
    if arguments.command == "verify":
        return _verify(store, steps)
    return _explain(store, root, steps[-1], as_json=arguments.json)


def _find(folder: Path) -> tuple[Path, list[int]]:
    """The store's folder and the steps that are meant."""
    step = step_of(folder.resolve().name)
    if step is not None:
        there = (folder / MANIFEST_FILE).exists()
        return folder.resolve().parent, [step] if there else []
    inner = folder / CHECKPOINTS_DIR
    root = inner if inner.is_dir() else folder
    return root, PosixStore(root).steps()


def _list(store: PosixStore, steps: list[int], good: int | None) -> int:
    code = _FOUND
    print(f"{'step':>10}  {'MB':>9}  {'held-out loss':>13}  {'ranks':>5}  {'saved':19}  why")
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


def _verify(store: PosixStore, steps: list[int]) -> int:
    code = _FOUND
    for step in steps:
        mistakes = store.verify(step)
        for mistake in mistakes:
            print(f"{folder_name(step)}: corrupt: {mistake}")
            code = _CORRUPT
        if not mistakes:
            manifest = store.manifest(step)
            megabytes = manifest.bytes / 1e6
            print(f"{folder_name(step)}: ok, {len(manifest.files)} files, {megabytes:.1f} MB")
    return code


def _explain(store: PosixStore, root: Path, step: int, *, as_json: bool) -> int:
    try:
        manifest = store.manifest(step)
    except CorruptCheckpoint as error:
        print(f"{folder_name(step)}: corrupt: {error}", file=sys.stderr)
        return _CORRUPT
    if as_json:
        print(manifest.to_json(), end="")
        return _FOUND
    print(root / folder_name(step))
    for name, value in _facts(manifest):
        print(f"  {name:20} {value}")
    return _FOUND


def _facts(manifest: Manifest) -> list[tuple[str, str]]:
    run, trainer, cursor = manifest.run, manifest.trainer, manifest.data_cursor
    recorded = [(key, run[key]) for key in sorted(run)]
    facts = [
        ("step", manifest.step),
        ("saved", f"{_when(manifest)}, because of {manifest.reason}"),
        ("held-out loss", manifest.evaluation_loss),
        ("attempt", manifest.attempt),
        ("world size", manifest.world_size),
        ("parallelism", manifest.parallelism),
        ("dataset", f"{cursor.get('dataset')} version {cursor.get('version')}"),
        ("samples used", f"{cursor.get('samples')} of {cursor.get('windows')} per epoch"),
        *((key, value) for key, value in sorted(trainer.items())),
        *((f"run: {key}", value) for key, value in recorded),
        ("files", f"{len(manifest.files)}, {manifest.bytes / 1e6:.1f} MB"),
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
        prog="python -m training.checkpoint", description="Look at a run's checkpoints."
    )
    parser.add_argument("command", choices=("list", "verify", "explain"))
    parser.add_argument("dir", type=Path, metavar="DIR", help="run directory or step folder")
    parser.add_argument("--json", action="store_true", help="explain: print the manifest itself")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
