"""A group whose settings would give other bits or other rounds is refused, and the others go on."""

from __future__ import annotations

import pytest

from tests.trainer.elastic_groups import ElasticRun, advance, grown

OTHERS = ("evaluation.every_steps=7", "data.documents=separate", "report.every_seconds=3")


@pytest.mark.parametrize("elastic", [pytest.param(1, id="1 rank")], indirect=True)
def test_a_group_with_other_settings_is_refused_with_a_line_for_each(elastic: ElasticRun) -> None:
    grown(elastic, 1)
    other = elastic.trainer.start(elastic.name, *elastic.settings, *OTHERS, world=1)
    assert other.wait() == [78], other.output()
    lines = other.output().splitlines()
    assert [line.split(":")[1].strip() for line in lines] == [
        "data.documents",
        "evaluation.every_steps",
    ]
    assert "7 here, 40 in the groups that train; must be the same" in lines[1]
    advance(elastic)
