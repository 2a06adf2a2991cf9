"""Each rule of docs/elastic.md on real groups: whatever happens, the losses are those of the undisturbed run."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.elastic_groups import (
    SILENT,
    ElasticRun,
    advance,
    groups_of_one,
    groups_of_one_or_two,
    groups_of_two,
    grown,
    start_run,
    stop_run,
)
from tests.trainer.ranks import Hook, until
from tests.trainer.runs import Trainer

pytestmark = pytest.mark.long(187)


@groups_of_one_or_two
def test_an_announced_leave_ends_that_group_alone(elastic: ElasticRun) -> None:
    grown(elastic, 2)
    elastic.groups[0].signal(signal.SIGTERM)
    assert set(elastic.groups[0].wait()) == {75}
    elastic.until_groups(1)
    advance(elastic)
    assert elastic.groups[1].pids and not elastic.groups[1].all_ended()
    assert "left" in elastic.view()["reason"]
    assert "lacks" not in elastic.groups[1].output()


@groups_of_one_or_two
def test_a_spare_waits_until_there_is_room(elastic: ElasticRun) -> None:
    elastic.numbers |= {"max": 2}
    grown(elastic, 2)
    elastic.add()
    advance(elastic, 20)
    assert len(elastic.view()["members"]) == 2
    elastic.groups[1].signal(signal.SIGKILL)
    until(
        lambda: "joined" in elastic.view()["reason"] and elastic.view()["number"] > 3, "the spare"
    )
    elastic.until_groups(2)
    advance(elastic)


@groups_of_one_or_two
def test_the_leader_and_another_are_killed_at_once(elastic: ElasticRun) -> None:
    grown(elastic, 4)
    for victim in (0, 2):
        elastic.groups[victim].signal(signal.SIGKILL)
    elastic.until_groups(2)
    advance(elastic)
    assert not elastic.groups[1].all_ended()
    assert not elastic.groups[3].all_ended()


@groups_of_one_or_two
def test_a_leader_that_falls_silent_and_comes_back_joins_again(elastic: ElasticRun) -> None:
    elastic.settings += (SILENT,)
    grown(elastic, 2)
    elastic.groups[0].signal(signal.SIGSTOP)
    elastic.until_groups(1)
    advance(elastic)
    elastic.groups[0].signal(signal.SIGCONT)
    elastic.until_groups(2)
    advance(elastic)
    assert "joins again" in elastic.groups[0].output()


@groups_of_two
def test_the_loss_of_one_rank_is_the_loss_of_its_group(elastic: ElasticRun) -> None:
    elastic.settings += (SILENT,)
    grown(elastic, 3)
    for group, number in enumerate((signal.SIGKILL, signal.SIGSTOP)):
        elastic.groups[group].signal(number, 1)
        elastic.until_groups(2 - group)
        advance(elastic)
        until_other_ranks_ended(elastic, group, 1)
    found = elastic.groups[0].output()
    assert "this group ends" in found or "another rank is gone" in found
    assert "rank 1 of this group silent" in elastic.groups[1].output()
    elastic.add()
    elastic.until_groups(2)
    advance(elastic)


def until_other_ranks_ended(run: ElasticRun, group: int, rank: int) -> None:
    """Wait until the other ranks of a group have failed, and end this one."""
    ranks = run.groups[group]
    others = set(range(run.ranks)) - {rank}
    until(lambda: ranks.all_ended() or others <= set(ranks.codes), f"the group: {run.output()}")
    assert {ranks.codes[other] for other in others} == {1}
    ranks.end()


@groups_of_two
def test_a_notice_for_one_rank_lets_its_group_leave(elastic: ElasticRun) -> None:
    grown(elastic, 2)
    elastic.groups[0].signal(signal.SIGTERM, 1)
    assert elastic.groups[0].wait() == [75, 75]
    elastic.until_groups(1)
    advance(elastic)
    assert "left" in elastic.view()["reason"]


@groups_of_one_or_two
def test_below_the_smallest_number_the_run_saves_and_ends_with_75(elastic: ElasticRun) -> None:
    elastic.numbers |= {"min": 2}
    for _ in range(2):
        elastic.add()
    elastic.files.until_step(3)
    elastic.groups[1].signal(signal.SIGKILL)
    assert set(elastic.groups[0].wait()) == {75}
    commits = elastic.files.events("checkpoint_commit")
    assert commits[-1]["step"] == elastic.files.last_step()
    for _ in range(2):
        elastic.add()
    advance(elastic)
    assert elastic.files.events("resumed")[-1]["from_step"] == commits[-1]["step"]


@groups_of_one_or_two
def test_a_lone_group_that_was_stopped_notices_that_another_took_over(elastic: ElasticRun) -> None:
    # Without checkpoints: no save that is refused shows it to the former group.
    elastic.numbers |= {"max": 1}
    elastic.settings += (
        SILENT,
        "checkpoint.every_steps=1000000",
    )
    grown(elastic, 1)
    before = elastic.view()
    elastic.groups[0].signal(signal.SIGSTOP)
    elastic.add()
    until(lambda: elastic.view()["members"] != before["members"], "the next group")
    until(lambda: len(elastic.files.events("started")) == 2, "its start")
    elastic.groups[0].signal(signal.SIGCONT)
    until(lambda: "joins again" in elastic.groups[0].output(), f"the end: {elastic.output()}")
    advance(elastic)
    assert len(elastic.view()["members"]) == 1
    assert [event["attempt"] for event in elastic.files.events("started")] == [1, 2]
    assert not elastic.files.events("checkpoint_commit")
    assert late_entries(elastic, 1) == []


def late_entries(run: ElasticRun, attempt: int) -> list[dict[str, Any]]:
    """Return what a former leader has written after the start of the next one."""
    entries = [
        json.loads(line) for line in (run.files.path / "events.jsonl").read_text().splitlines()
    ]
    (start,) = (
        n for n, e in enumerate(entries) if e["event"] == "started" and e["attempt"] > attempt
    )
    return [entry for entry in entries[start:] if entry["attempt"] <= attempt]


def out_of_reach(_: int) -> None:
    """Have a group and the others not reach each other."""
    from trainyard.elastic.links import Links

    plain = Links._connect_new

    def refuse(links: Links) -> None:
        for peer in links._peers.values():
            peer.gone = True
        plain(links)

    patch = pytest.MonkeyPatch()
    patch.setattr(Links, "_connect_new", refuse)
    patch.setattr(Links, "_welcome", Links._drop)


@groups_of_one
def test_a_run_is_not_taken_over_while_its_lease_is_renewed(elastic: ElasticRun) -> None:
    grown(elastic, 1)
    elastic.add(out_of_reach)
    until(lambda: "cannot be reached" in elastic.groups[1].output(), "the report")
    advance(elastic)
    assert elastic.view()["number"] == 1
    elastic.groups[0].signal(signal.SIGKILL)
    until(lambda: elastic.view()["number"] == 2, f"the next group: {elastic.output()}")
    elastic.files.until_step(elastic.files.last_step() + 3)


def unwritable_while(file: Path) -> Hook:
    """Have the file system refuse new views while `file` exists."""

    def hook(_: int) -> None:
        plain = os.link

        def link(source: Path, target: Path) -> None:
            if file.exists() and Path(target).name.startswith("view-"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            plain(source, target)

        pytest.MonkeyPatch().setattr(os, "link", link)

    return hook


@groups_of_one_or_two
def test_a_view_that_cannot_be_written_is_awaited(elastic: ElasticRun) -> None:
    full = elastic.trainer.root / "full"
    grown(elastic, 2, unwritable_while(full))
    full.touch()
    elastic.groups[0].signal(signal.SIGKILL)
    until(lambda: "No space left" in elastic.groups[1].output(), "the report")
    assert not elastic.groups[1].all_ended()
    full.unlink()
    elastic.until_groups(1)
    advance(elastic)


def not_saving(step: int, folder: Path) -> Hook:
    """Have the checkpoint of a step fail; a group that does not save it waits, once `folder/held` is there."""

    def hook(_: int) -> None:
        from trainyard.elastic.run import Run
        from trainyard.store.posix import PosixUpload

        patch, compare, commit = pytest.MonkeyPatch(), Run._compare, PosixUpload.commit

        def held(run: Run) -> None:
            compare(run)
            if run.step == step and not run.leads:
                (folder / "held").touch()
                until((folder / "go").exists, "its end")

        def fail(upload: PosixUpload, manifest: Any, fence: Any) -> Any:
            if manifest.step == step:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return commit(upload, manifest, fence)

        patch.setattr(Run, "_compare", held)
        patch.setattr(PosixUpload, "commit", fail)

    return hook


def test_a_failed_last_save_is_not_forgotten_in_the_next_view(
    trainer: Trainer, tmp_path: Path
) -> None:
    hook = not_saving(6, tmp_path)
    run = start_run(trainer, "run", 2, "steps=6", minimum=2, hook=hook)
    until(lambda: run.files.events("finished"), f"the failed save: {run.output()}")
    until((tmp_path / "held").exists, f"the end: {run.output()}")
    leader = [number for number, group in enumerate(run.groups) if "view 2" in group.output()]
    (leads,) = leader
    run.groups[1 - leads].signal(signal.SIGKILL)
    assert run.groups[leads].wait() == [1], run.output()
    assert [one["reason"] for one in run.files.events("finished")] == [
        "not saved",
        "preempted, not saved",
    ]
    assert run.view()["reason"] == "stopped"


def stuck_once(file: Path) -> Hook:
    """Have a group not compute while `file` exists, though it answers."""

    def hook(_: int) -> None:
        from trainer.data.prefetch import PrefetchLoader

        plain = PrefetchLoader.take

        def stuck(loader: PrefetchLoader, *arguments: Any) -> Any:
            until(lambda: not file.exists(), "the end of the hang")
            return plain(loader, *arguments)

        pytest.MonkeyPatch().setattr(PrefetchLoader, "take", stuck)

    return hook


@groups_of_one_or_two
def test_a_group_that_answers_but_does_not_compute_is_left_behind(elastic: ElasticRun) -> None:
    file = elastic.trainer.root / "stuck"
    elastic.settings += ("collective_timeout_s=2",)
    elastic.add()
    elastic.add(stuck_once(file))
    elastic.until_groups(2)
    file.touch()
    elastic.until_groups(1)
    advance(elastic)
    file.unlink()
    elastic.until_groups(2)


def held_in_join(folder: Path) -> Hook:
    """Have a joining group get the state, and wait until it may go on."""

    def hook(_: int) -> None:
        from trainyard.elastic.run import Run

        plain = Run._take_in

        def held(*arguments: Any) -> Any:
            (folder / "joining").touch()
            until((folder / "go").exists, "the test")
            return plain(*arguments)

        pytest.MonkeyPatch().setattr(Run, "_take_in", held)

    return hook


@groups_of_one_or_two
@pytest.mark.parametrize(
    "victim",
    [pytest.param(0, id="leader"), pytest.param(1, id="sender"), pytest.param(2, id="joiner")],
)
def test_a_loss_during_a_join(elastic: ElasticRun, victim: int) -> None:
    folder = elastic.trainer.root
    grown(elastic, 2)
    elastic.add(held_in_join(folder))
    until((folder / "joining").exists, "the join")
    lost = [member["id"] for member in elastic.view()["members"]][victim : victim + 1]
    elastic.groups[victim].signal(signal.SIGKILL)
    (folder / "go").touch()
    until(
        lambda: not {member["id"] for member in elastic.view()["members"]} & set(lost), "the loss"
    )
    elastic.until_groups(2)
    advance(elastic)


def watched_warm_up(file: Path) -> Hook:
    """Have a joining group write down how many passes it has made before it gets the state."""

    def hook(_: int) -> None:
        from trainer.parallel.passes import FullModelPasses
        from trainyard.elastic.feed import Intake

        patch, passes = pytest.MonkeyPatch(), list[int]()
        plain, receive = FullModelPasses.forward_backward, Intake.state

        def counted(*arguments: Any) -> Any:
            passes.append(1)
            return plain(*arguments)

        def received(*arguments: Any) -> Any:
            file.write_text(str(len(passes)))
            return receive(*arguments)

        patch.setattr(FullModelPasses, "forward_backward", counted)
        patch.setattr(Intake, "state", received)

    return hook


@groups_of_one_or_two
def test_a_group_computes_before_it_joins(elastic: ElasticRun) -> None:
    file = elastic.trainer.root / "warm"
    grown(elastic, 1)
    elastic.add(watched_warm_up(file))
    elastic.until_groups(2)
    advance(elastic)
    assert file.read_text() == "1"


def slow_staging(go: Path) -> Hook:
    """Have the memory for checkpoints be there only once the test lets it."""

    def hook(_: int) -> None:
        from trainyard.tensors import staging

        plain = staging.allocate

        def slow(*arguments: Any) -> Any:
            until(go.exists, "the test")
            return plain(*arguments)

        pytest.MonkeyPatch().setattr(staging, "allocate", slow)

    return hook


@groups_of_one_or_two
def test_a_new_leader_trains_while_it_allocates_memory_for_checkpoints(elastic: ElasticRun) -> None:
    go = elastic.trainer.root / "go"
    elastic.settings += ("checkpoint.every_steps=1000000",)
    grown(elastic, 1)
    elastic.add(slow_staging(go))
    elastic.until_groups(2)
    elastic.groups[0].signal(signal.SIGKILL)
    elastic.until_groups(1)
    advance(elastic)
    assert not elastic.files.events("checkpoint_commit")
    go.touch()
    stop_run(elastic)
    assert elastic.files.events("checkpoint_commit")[-1]["step"] == elastic.files.last_step()


def divided_by(file: Path) -> Hook:
    """Have a group exchange nothing with those on the other side while `file` lists one side's ids."""

    def hook(_: int) -> None:
        from trainyard.elastic.links import Links
        from trainyard.elastic.run import Run

        patch, hear, wait = pytest.MonkeyPatch(), Links._hear, Run._or_lost
        here: list[Run] = []

        def cut(peer: str) -> bool:
            side = json.loads(file.read_text()) if file.exists() else []
            own = here[0]._membership.id if here else ""
            return bool(side) and (peer in side) != (own in side)

        def heard(links: Links, connection: Any) -> None:
            peer = links._peer(connection)
            names = [name for name, one in links._peers.items() if one is peer]
            if names and cut(names[0].partition("/")[0]):
                connection.recv(4096)
            else:
                hear(links, connection)

        def waited(run: Run, work: Any) -> Any:
            here[:] = [run]

            def divided() -> Any:
                until(lambda: not any(cut(m.id) for m in members), "the end of the division")
                return work()

            members = run._membership.current.members
            return wait(run, divided)

        patch.setattr(Links, "_hear", heard)
        patch.setattr(Run, "_or_lost", waited)

    return hook


@groups_of_one_or_two
def test_only_one_part_of_a_divided_network_goes_on(elastic: ElasticRun) -> None:
    file = elastic.trainer.root / "divided"
    elastic.settings += (SILENT,)
    grown(elastic, 3, divided_by(file))
    members = [member["id"] for member in elastic.view()["members"]]
    temporary = file.with_suffix(".new")
    temporary.write_text(json.dumps(members[:1]))
    temporary.rename(file)

    def divided() -> bool:
        kept = {member["id"] for member in elastic.view()["members"]}
        return bool(kept) and not (members[0] in kept and kept & set(members[1:]))

    # A part may lose one more member on the way, which joins again with another id.
    until(divided, "a view of one part")
    advance(elastic)
    assert divided()
    file.unlink()
    elastic.until_groups(3)
    advance(elastic)
