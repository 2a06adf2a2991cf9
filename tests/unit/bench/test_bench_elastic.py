"""What the benchmark of groups that come and go concludes from the steps that groups print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import __main__ as command
from bench.elastic import (
    MOST_GROUPS,
    differing_bits,
    plan_changes,
    quantiles,
    stall_seconds,
)
from bench.groups import Group, Programs


def test_plans_are_seeded_follow_traces_and_stay_within_the_limits(tmp_path: Path) -> None:
    assert plan_changes(50, 3) == plan_changes(50, 3) != plan_changes(50, 4)
    (tmp_path / "one.json").write_text(json.dumps({"data": [0, 4, 4, 1, 4]}))
    plan = plan_changes(12, 3, [tmp_path / "one.json"])
    assert plan[:3] == ["joined"] * 3 and "joined" not in plan[3:6]
    for seed in range(20):
        groups = 1
        for kind in plan_changes(50, seed):
            groups += 1 if kind == "joined" else -1
            assert 1 <= groups <= MOST_GROUPS


def test_the_stall_of_a_change_is_its_longest_step_less_a_usual_one() -> None:
    gaps = [(n / 10, 0.1) for n in range(20)] + [(2.6, 0.7), (2.7, 0.1), (5.0, 2.3)]
    assert stall_seconds(gaps, 1.95, 2.65, 3.0) == pytest.approx(0.6)


def test_bits_are_counted_and_quantiles_are_of_the_values() -> None:
    assert differing_bits("0.1", "0.1") == 0
    assert differing_bits("1.0", "1.0000000000000002") == 1
    assert quantiles([3.0, 1.0, 2.0]) == {"count": 3, "p50": 2.0, "p95": 3.0}


def program(folder: Path, *lines: str) -> Programs:
    file = folder / "program.py"
    file.write_text("\n".join(lines))
    return Programs(folder, [str(file)])


def test_steps_are_read_from_what_a_group_prints(tmp_path: Path) -> None:
    run = program(
        tmp_path, "print('step 1 loss 0.5 groups 1\\nstep 1: no\\nstep 2 loss nan groups 2')"
    )
    group = run.start()
    assert group.end() == 0
    assert [(s.number, s.loss, s.groups) for s in group.steps] == [(1, "0.5", 1), (2, "nan", 2)]
    assert group.steps[0].at <= group.steps[1].at


def test_a_prepared_group_starts_when_it_is_to(tmp_path: Path) -> None:
    run = program(tmp_path, "import sys", "print('step 7 loss 1.0 groups', len(sys.argv))")
    run.prepare()
    prepared: list[Group] = list(run.started)
    assert not prepared
    group = run.start()
    assert group.end() == 0 and group.last == 7


def test_losses_are_compared_with_those_of_a_group_alone(tmp_path: Path) -> None:
    run = program(
        tmp_path,
        "import os, time",
        "alone = 'alone' in os.environ['TRAINYARD_RUN_DIR'].rpartition('/')[2]",
        "for step in (1, 2, 3) if alone else (1, 3):",
        "    print(f'step {step} loss {0.5 if alone or step == 1 else 0.25} groups 1', flush=True)",
        "time.sleep(600 if alone else 0)",
    )
    run.start().end()
    assert run.compare() == ([(3, "0.25", "0.5")], [2])
    run.stop()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--program", "nowhere"], "--program: nowhere has neither elastic.py nor train.py"),
        (["--traces", "nowhere"], "--traces: no trace in nowhere; name a folder"),
        (["--changes", "0"], "--changes: got 0; expected 1 or more"),
    ],
)
def test_an_option_that_cannot_be_used_is_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["elastic", *words])
    assert ended.value.code == 2 and said in capsys.readouterr().err.splitlines()[-1]
