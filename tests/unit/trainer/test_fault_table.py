"""The table of fault suites keeps one row per fault, the newest."""

from __future__ import annotations

from tests.trainer.fault_table import BEGIN, END, Trials, table, with_table

PAGE = f"before\n{BEGIN}\n{END}\nafter\n"


def row(fault: str, *, lost: int | None = None, passed: bool = True) -> Trials:
    made = Trials(full=True)
    made.numbers(fault, 1, 50)
    made.seed, made.day = 7, "2026-01-31"
    if lost is not None:
        made.lost(lost)
        made.lost(0)
    made.passed = passed
    return made


def test_a_row_says_how_often_with_which_seed_and_what_was_lost_at_most() -> None:
    assert row("a", lost=4).cells() == ("a", "50", "7", "4", "passed", "2026-01-31")
    assert row("b", passed=False).cells() == ("b", "50", "7", "", "FAILED", "2026-01-31")
    assert list(row("a").numbers("a", 2, 50)) == list(range(50))


def test_rows_of_faults_that_ran_again_replace_theirs_and_others_stay() -> None:
    once = with_table(PAGE, [row("a"), row("b")])
    again = with_table(once, [row("b", passed=False), row("c")])
    assert again == with_table(PAGE, [row("a"), row("b", passed=False), row("c")])
    assert again.startswith("before\n") and again.endswith("after\n")
    assert table([row("a")]).splitlines()[2] == "| a | 50 | 7 |  | passed | 2026-01-31 |"
