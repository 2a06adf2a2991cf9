"""Checkpoints that all ranks write and rank 0 publishes, verified when read. All calls are made by every rank.

Of state, written in the background while training goes on, and loaded by ranks of any layout (torch only):

    found = trainyard.checkpoints.load(state)                  # fills its tensors; None without a checkpoint
    trainyard.checkpoints.save_async(state, step)              # nested dicts, lists, tensors, DTensors, numbers

Of files, for frameworks that write their own:

    found = trainyard.checkpoints.latest()
    with trainyard.checkpoints.save(step, metadata={"epoch": 3}) as folder:
        torch.save(state, folder / f"rank-{rank}.pt")

A checkpoint is visible complete or not at all: files are flushed and hashed by all ranks, then rank 0
writes the manifest and publishes it. `python -m trainer.checkpoint list|verify|explain` reads it.
Outside a run checkpoints go to ./checkpoints.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trainyard import contract, notice, session, shared_files
from trainyard.disk import fsync_folder
from trainyard.publication import Publication, describe_node
from trainyard.run_info import run
from trainyard.store.interface import (
    BLOCK_BYTES,
    CheckpointStore,
    SaveFailed,
    StaleAttempt,
    folder_name,
)
from trainyard.store.manifest import (
    Content,
    CorruptCheckpoint,
    FileRecord,
    Manifest,
    UnknownFormat,
)
from trainyard.store.posix import WRITING, PosixStore
from trainyard.watchdog import SAVE, watchdog

if TYPE_CHECKING:
    from trainyard.tensors.saver import Saver

KEEP_LATEST: Final = 3
TIMEOUT_S: Final = 1800.0
"""Limit for the slowest rank of a save, and for a verification in which no rank makes progress."""
_TELL_S: Final = 5.0
"""Seconds between two messages of a rank that it makes progress."""
stalls: list[float] = []
"""Seconds of each save since the last call of `trainyard.log`, which reports them."""
_last = [0.0]
"""Seconds of this rank's last `save`."""
_calls = {"latest": 0, "save": 0}
"""Calls so far; equal on all ranks."""
_SAVE: Final = "-save-"
"""Precedes the number of the call: a rank may start the next save while others end this one."""
_MESSAGES: Final = "-ranks"
"""Suffix of the folder for the messages of a save."""


class NoUsableCheckpoint(Exception):
    """None of the existing checkpoints is as it was written, or the newest cannot be verified here."""


@dataclass(frozen=True)
class Checkpoint:
    """A published checkpoint whose files are as they were written."""

    step: int
    path: Path
    metadata: Mapping[str, Any]
    """What `save` was given."""
    state: Any = None
    """What `load` returns: the state that `save_async` was given."""


def latest() -> Checkpoint | None:
    """Return the newest checkpoint whose hashes are right; None if there is no checkpoint.

    A call of all ranks, which get the same answer; each verifies a part of the files. A corrupt checkpoint is
    reported in one line, recorded as an event and set aside. Raises NoUsableCheckpoint when all are corrupt, or
    when this installation cannot verify one: a later format, or BLAKE3 without the package blake3.
    """
    current, store = session.current(), session.store()
    _calls["latest"] += 1
    rounds = _Rounds(current.messages / f"latest-{_calls['latest']}")

    def verified(asked: dict[str, Any]) -> dict[str, Any]:
        try:
            defects = store.verify(asked["step"], asked["parts"][run.rank], rounds.progress)
        except UnknownFormat as error:
            return {"unknown": str(error)}
        return {"defects": defects}

    def verify(step: int) -> list[str]:
        try:
            files = store.manifest(step).files
        except CorruptCheckpoint as error:
            return [str(error)]
        parts = _parts({name: one.bytes for name, one in files.items()}, run.world_size)
        question = {"step": step, "parts": parts}
        rounds.ask(question)
        answers = rounds.collect(verified(question))
        for answer in answers:
            if unknown := answer.get("unknown"):
                raise UnknownFormat(unknown)
        return [defect for answer in answers for defect in answer["defects"]]

    if run.rank == 0:
        answer = _newest_good(store, current, verify)
        rounds.end(answer)
    else:
        answer = rounds.follow(verified)
    if error := answer.get("error"):
        raise NoUsableCheckpoint(error)
    if answer["step"] is None:
        return None
    step = int(answer["step"])
    return Checkpoint(step, run.checkpoints / folder_name(step), answer["metadata"])


def _newest_good(
    store: CheckpointStore, current: session.Session, verify: Callable[[int], list[str]]
) -> dict[str, Any]:
    bad: list[int] = []
    for step in reversed(store.steps()):
        try:
            defects = verify(step)
        except UnknownFormat as error:
            return {"error": f"{store.place}/{folder_name(step)}: {error}"}
        if not defects:
            _resumed(store, current, step, bad)
            return {"step": step, "metadata": _metadata(store.manifest(step))}
        bad.append(step)
        _report_corrupt(current, step, defects[0])
    return {"error": _all_corrupt(store, bad)} if bad else {"step": None}


class _Rounds:
    """Messages by which rank 0 asks all ranks about their parts of some files, and tells the outcome."""

    def __init__(self, place: Path) -> None:
        """`place`: of the messages, whose names begin with its name."""
        self._place = place
        self._asked = self._answered = 0
        self._told = 0.0

    def ask(self, question: dict[str, Any]) -> None:
        """Send a question, or the outcome, to the other ranks; on rank 0."""
        self._send(f"asked-{self._asked}", question)
        self._asked += 1

    def end(self, outcome: dict[str, Any]) -> None:
        self.ask({"outcome": outcome})

    def collect(self, own: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the answers of all ranks to the last question; on rank 0, whose own one is given."""
        others = range(1, run.world_size)
        number, self._answered = self._answered, self._answered + 1
        return [own, *(self._receive(f"{number}-rank-{r}", f"rank {r}'s files") for r in others)]

    def answer(self, values: dict[str, Any]) -> None:
        """Answer the next question, which may not be asked yet."""
        self._send(f"{self._answered}-rank-{run.rank}", values)
        self._answered += 1

    def follow(self, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        """Answer questions until rank 0 tells the outcome; return that."""
        while "outcome" not in (asked := self._receive(f"asked-{self._asked}", "rank 0's word")):
            self._asked += 1
            self.answer(answer(asked))
        outcome: dict[str, Any] = asked["outcome"]
        return outcome

    def progress(self) -> None:
        """Tell that this rank makes progress, every few seconds."""
        if time.monotonic() - self._told > _TELL_S:
            self._told = time.monotonic()
            watchdog.still_working()
            with contextlib.suppress(OSError):
                self._send("alive", [run.rank, self._told])

    def _send(self, name: str, values: Any) -> None:
        shared_files.write(self._file(name), values)

    def _receive(self, name: str, what: str) -> dict[str, Any]:
        """Raises RankMissing."""
        found: dict[str, Any] = shared_files.wait(
            self._file(name), _timeout_s(), what, self._file("alive")
        )
        return found

    def _file(self, name: str) -> Path:
        return self._place.with_name(f"{self._place.name}-{name}")


def _resumed(
    store: CheckpointStore, current: session.Session, step: int, bad: Sequence[int]
) -> None:
    for other in bad:
        store.set_aside(other)
    store.mark_known_good(step)
    current.events.write("resumed", step, from_step=step, source=store.place)


def _report_corrupt(current: session.Session, step: int, defect: str) -> None:
    print(f"checkpoint {folder_name(step)} skipped: {defect}", file=sys.stderr, flush=True)
    current.events.write("checkpoint_corrupt", step, error=defect, rank=run.rank)


def _all_corrupt(store: CheckpointStore, bad: Sequence[int]) -> str:
    return (
        f"{store.place}: none of the {len(bad)} checkpoints can be loaded; "
        "move the folder away to restart from step 0"
    )


@contextlib.contextmanager
def save(
    step: int,
    metadata: Mapping[str, Any] | None = None,
    *,
    milestone: bool = False,
    evaluation_loss: float | None = None,
    keep_latest: int = KEEP_LATEST,
) -> Iterator[Path]:
    """Write a checkpoint: the body puts files into the folder, the end of the block publishes it.

    A call of all ranks, with the same arguments; names of files must differ between ranks. `metadata`
    must fit into JSON. `milestone`: never delete it. `evaluation_loss`: nats per token; the lowest
    is kept. `keep_latest`: how many others to keep. Raises SaveFailed on every rank if any rank
    failed, StaleAttempt if a newer start of this run exists, OSError.
    """
    if run.checkpoint_store:
        raise SaveFailed(
            f"{contract.CHECKPOINT_STORE_ENV}: `save` writes files into a folder; use `save_async`, or unset it"
        )
    begun, before = time.monotonic(), watchdog.enter(SAVE)
    step = int(step)
    current = session.current()
    _calls["save"] += 1
    call = f"-attempt-{current.fence.attempt:08d}{_SAVE}{_calls['save']}"
    hidden = run.checkpoints / f"{WRITING}{folder_name(step)}{call}"
    messages = hidden.with_name(f"{hidden.name}{_MESSAGES}")
    hidden.mkdir(parents=True, exist_ok=True)
    messages.mkdir(parents=True, exist_ok=True)
    rounds = _Rounds(messages / "save")
    saving = Publication.begin(step, metadata, milestone, evaluation_loss, keep_latest, begun)
    if run.rank == 0:
        saving.announce()
    try:
        yield hidden
        _flush(hidden)
    except BaseException as error:
        text = " ".join(str(error).split()) or type(error).__name__
        with contextlib.suppress(OSError):
            rounds.answer({"error": text})
            if run.rank == 0:
                rounds.end({"error": f"rank 0: {text}"})
        raise
    finally:
        stalls.append(time.monotonic() - begun)
    try:
        if run.rank == 0:
            _publish(saving, rounds, hidden)
        else:
            _contribute(rounds, hidden)
    except shared_files.RankMissing as error:
        raise SaveFailed(f"step {step} not saved: {error}") from None
    _last[0] = time.monotonic() - begun
    if run.rank == 0:
        _remove_older(hidden)
    watchdog.enter(before)


def save_async(
    state: Any,
    step: int,
    metadata: Mapping[str, Any] | None = None,
    *,
    milestone: bool = False,
    evaluation_loss: float | None = None,
    keep_latest: int = KEEP_LATEST,
    reason: str = "",
    files: Mapping[str, bytes] | None = None,
    timeout_s: float | None = None,
) -> bool:
    """Start a checkpoint of `state`; return once it is copied. A call of all ranks, with their own state.

    `state`: nested dicts, lists and tuples of tensors, DTensors, numbers and text. A tensor that several ranks
    hold is written by one of them; values that are not tensors are rank 0's. The random generators of every
    rank are saved, too. `reason`: one word for lists of checkpoints; `files`: further files of rank 0 by name,
    such as a tokenizer. The other arguments are those of `save`.

    Waits for a save in flight, at most `timeout_s`, by default half an hour or until a notice ends this process;
    returns False, without a checkpoint of this step, if that does not end. A save that failed is printed by the
    next call, and training goes on; `wait` raises it. Raises TypeError for other values, StaleAttempt if a newer
    start of this run exists, RuntimeError for ranks without torch.distributed.
    """
    begun, before = time.monotonic(), watchdog.enter(SAVE)
    saver = _saver()
    saving = Publication.begin(
        int(step), metadata, milestone, evaluation_loss, keep_latest, begun, reason=reason
    )
    try:
        return saver.save(
            state,
            saving,
            files or {},
            lambda waited_s: waited_s >= (_timeout_s() if timeout_s is None else timeout_s),
        )
    finally:
        stalls.append(time.monotonic() - begun)
        watchdog.enter(before)


def prepare(state: Any) -> None:
    """Plan the saves of this state and begin to allocate the memory for its copy, so that the first save is not
    slower than others. A call of all ranks; optional.
    """
    _saver().prepare(state)


def wait(timeout_s: float | None = None) -> None:
    """Wait until the save in flight is complete. A call of all ranks.

    Raises SaveFailed, StaleAttempt or OSError on all of them if it failed, SaveUnfinished if it took longer.
    """
    if _saver.cache_info().currsize:
        _saver().wait(timeout_s)


def settle() -> None:
    """Wait for the save in flight, at most until a notice ends this process, and print why it failed."""
    if _saver.cache_info().currsize:
        _saver().settle(_timeout_s())


def saved_step() -> int:
    """Return the step of the newest checkpoint that `load` or `save_async` of this start completed; 0 for none."""
    return _saver().saved_step if _saver.cache_info().currsize else 0


def load(
    state: Any = None, check: Callable[[Mapping[str, Any]], None] | None = None
) -> Checkpoint | None:
    """Return the newest checkpoint of `save_async` with its state; None if there is no checkpoint.

    A call of all ranks. Tensors and DTensors of `state` are filled in place, whatever the layout of the ranks
    that saved them; others are returned whole, on the processor: load these into a model or an optimizer by
    their `load_state_dict`. Random generators continue where this rank's were, if the number of ranks is the
    same. A corrupt checkpoint is reported and set aside, and the one before it loaded. `check`: called with the
    metadata before anything else is read; raises if this program cannot go on from there. Raises
    NoUsableCheckpoint when all are corrupt or cannot be read here, StateMismatch (`trainyard.tensors.state`)
    if the state has other tensors, OSError if any rank cannot read.
    """
    current, saver = session.current(), _saver()
    bad: list[int] = []
    for step in reversed(saver.steps()):
        try:
            found = saver.load(step, state, lambda one: check(_metadata(one)) if check else None)
        except UnknownFormat as error:
            raise NoUsableCheckpoint(f"{saver.store.place}/{folder_name(step)}: {error}") from error
        except CorruptCheckpoint as error:
            bad.append(step)
            if run.rank == 0:
                _report_corrupt(current, step, str(error))
            continue
        if run.rank == 0:
            _resumed(saver.store, current, step, bad)
        metadata = _metadata(found.manifest)
        return Checkpoint(step, run.checkpoints / folder_name(step), metadata, found.state)
    if bad:
        raise NoUsableCheckpoint(_all_corrupt(saver.store, bad))
    return None


def _metadata(manifest: Manifest) -> Mapping[str, Any]:
    found: Mapping[str, Any] = manifest.trainer.get("metadata", {})
    return found


@functools.cache
def _saver() -> Saver:
    from trainyard.tensors.saver import Saver  # Loads torch.

    session.current()
    saver = Saver(session.store())
    atexit.register(_end)
    return saver


def _end() -> None:
    """Complete the save in flight, and drop the process group, whose threads must end before the process does."""
    settle()
    _saver.cache_clear()


def last_save_s() -> float:
    """Return how many seconds this rank's last save took until it was complete; 0 without one."""
    return max(_last[0], _saver().last_save_s if _saver.cache_info().currsize else 0.0)


def _contribute(rounds: _Rounds, hidden: Path) -> None:
    """Hash this rank's part and wait for the outcome. Raises SaveFailed, StaleAttempt, RankMissing."""

    def hashed(asked: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"files": _hashes(hidden, asked["parts"][run.rank])}
        except OSError as error:
            return {"error": str(error)}

    rounds.answer({"node": describe_node()})
    outcome = rounds.follow(hashed)
    if why := outcome.get("error"):
        raise StaleAttempt(why) if outcome.get("stale") else SaveFailed(why)


def _publish(saving: Publication, rounds: _Rounds, hidden: Path) -> None:
    """Collect the files of all ranks, publish them, and tell the outcome. Raises its failure."""
    store, outcome = PosixStore(run.checkpoints), dict[str, Any]()
    try:
        written = _successful(rounds.collect({"node": describe_node()}), saving.step)
        shared_files.refresh(hidden)
        parts = _parts(_sizes(hidden), run.world_size)
        rounds.ask({"parts": parts})
        hashed = _successful(rounds.collect({"files": _hashes(hidden, parts[0])}), saving.step)
        files = {name: record for one in hashed for name, record in one["files"].items()}
        nodes = [one["node"] for one in written if one["node"]]
        distinct = [node for i, node in enumerate(nodes) if node not in nodes[:i]]
        records = {name: FileRecord(**record) for name, record in sorted(files.items())}
        saving.publish(store, store.adopt(hidden), records, distinct)
    except BaseException as error:
        text = " ".join(str(error).split()) or type(error).__name__
        outcome = {"error": text, "stale": isinstance(error, StaleAttempt)}
        saving.failed(error)
        shutil.rmtree(hidden, ignore_errors=True)
        raise
    finally:
        with contextlib.suppress(OSError):
            rounds.end(outcome)


def _successful(answers: list[dict[str, Any]], step: int) -> list[dict[str, Any]]:
    """Return the answers of all ranks. Raises SaveFailed if one of them is an error."""
    for rank, answer in enumerate(answers):
        if "error" in answer:
            raise SaveFailed(f"step {step} not saved: rank {rank}: {answer['error']}")
    return answers


def _remove_older(published: Path) -> None:
    """Remove folders of earlier saves of this start, but none of later ones: other ranks may be there already."""
    start, number = published.name.rsplit(_SAVE, 1)
    attempt = start.rsplit("-attempt-", 1)[1]
    for folder in published.parent.glob(f"{WRITING}*-attempt-{attempt}{_SAVE}*"):
        if int(folder.name.removesuffix(_MESSAGES).rsplit(_SAVE, 1)[1]) < int(number):
            shutil.rmtree(folder, ignore_errors=True)


def _sizes(folder: Path) -> dict[str, int]:
    return {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file()
    }


def _parts(sizes: Mapping[str, int], ranks: int) -> list[list[str]]:
    """Return which rank hashes which files: about the same number of bytes each."""
    parts: list[list[str]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        least = loads.index(min(loads))
        parts[least].append(name)
        loads[least] += sizes[name]
    return parts


def _hashes(folder: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    return {name: asdict(_hash(folder / name)) for name in names}


def _hash(file: Path) -> FileRecord:
    content = Content()
    with file.open("rb", buffering=0) as stream:
        while block := stream.read(BLOCK_BYTES):
            content.update(block)
    return content.record()


def _flush(folder: Path) -> None:
    """Fsync what this host has written into the folder."""
    for place, _, names in os.walk(folder):
        for path in [place, *(os.path.join(place, name) for name in names)]:
            with contextlib.suppress(FileNotFoundError):  # a temporary file of another rank
                fsync_folder(Path(path))


def _timeout_s() -> float:
    left = notice.seconds_left()
    return TIMEOUT_S if left is None else max(1.0, left)
