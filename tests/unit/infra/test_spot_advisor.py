"""Interruption bands of AWS' Spot Instance Advisor: the catalog's, its refresh, and bad data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.cli import catalog as command
from infra.domain import catalog
from infra.domain.catalog import data_file
from infra.domain.catalog.interruptions import Band, relative_frequency
from tests.unit.infra.test_catalog import ANSWERS, NOW, aws, region
from tests.unit.infra.test_pools import pool

WEST = "us-west-2"


def document(**bands: int) -> dict[str, Any]:
    """The advisor's data of us-west-2, by index of the band."""
    types = {name.replace("_", "."): {"s": 60, "r": index} for name, index in bands.items()}
    ranges = [
        {"index": index, "label": band.value, "dots": index, "max": 5 * index + 5}
        for index, band in enumerate(Band)
    ]
    return {
        "global_rate": "<10%",
        "instance_types": {"p4d.24xlarge": {"emr": True, "cores": 96, "ram_gb": 1152.0}},
        "ranges": ranges,
        "spot_advisor": {WEST: {"Linux": types, "Windows": {}}},
    }


LISTED = {"p4d_24xlarge": 0, "g5_xlarge": 4}
BANDS = {WEST: {"p4d.24xlarge": Band.UP_TO_5, "g5.xlarge": Band.ABOVE_20}}


def test_the_highest_band_counts_as_one_and_lower_ones_by_their_middle() -> None:
    found = [round(relative_frequency(band), 2) for band in Band]
    assert found == [0.1, 0.3, 0.5, 0.7, 1.0]


def test_a_type_that_is_not_listed_counts_as_the_highest_band_and_of_several_the_highest() -> None:
    assert relative_frequency() == relative_frequency(None) == 1.0
    assert relative_frequency(Band.UP_TO_5, Band.UP_TO_15) == 0.5
    assert relative_frequency(Band.UP_TO_5, None) == 1.0


def test_the_catalog_has_bands_with_their_source_by_region() -> None:
    known = catalog.load()
    assert all(one.interruptions_source for one in known.regions.values())
    p4d = known.types["p4d.24xlarge"]
    assert p4d.interruptions["us-east-1"] is Band.UP_TO_15
    assert p4d.interruptions["eu-west-1"] is Band.ABOVE_20
    assert not known.types["p6e-gb200.36xlarge"].interruptions


def test_a_pool_has_the_bands_of_its_types_in_its_region() -> None:
    types = ("p4d.24xlarge", "p6-b200.48xlarge")
    found = pool(instance_types=types, region="us-east-1").interruptions
    assert found == {"p4d.24xlarge": Band.UP_TO_15, "p6-b200.48xlarge": None}
    assert pool(instance_types=types[:1], region="eu-west-1").interruptions == {
        "p4d.24xlarge": Band.ABOVE_20
    }
    assert pool(instance_types=types[:1], region="sa-east-1").interruptions == {
        "p4d.24xlarge": None
    }


def changed(**changes: Any) -> bytes:
    return json.dumps(document(**LISTED) | changes).encode()


def refresh(copy: Path, data: bytes) -> int:
    copy.write_bytes(data)
    with aws():
        return command.main(["refresh", "--region", WEST, "--advisor", str(copy)])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"<html>",
        changed(spot_advisor={WEST: {}}),
        changed(spot_advisor={WEST: {"Linux": {"g5.xlarge": {"s": 1}}}}),
        changed(ranges=[{"index": 0, "label": ">30%"}]),
        changed(ranges=[]),
        changed(spot_advisor={}),
    ],
)
def test_data_of_another_format_is_refused_in_one_line(
    data: bytes, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refresh(tmp_path / "copy.json", data) == 1
    said = capsys.readouterr().err
    assert "not a copy of https://spot-bid-advisor" in said and said.count("\n") == 1
    assert not file.exists()


def test_the_refresh_writes_bands_and_prices(file: Path, tmp_path: Path) -> None:
    assert refresh(tmp_path / "copy.json", changed()) == 0
    written = catalog.parse(file.read_text())
    assert written.types["p4d.24xlarge"].interruptions[WEST] is Band.UP_TO_5
    assert written.types["p4d.24xlarge"].prices[WEST].on_demand_usd_hour == 19.5
    source = written.regions[WEST].interruptions_source
    assert source.startswith("AWS' Spot Instance Advisor, a copy that was read on 20")


def test_without_a_copy_prices_are_refreshed_and_bands_kept(file: Path) -> None:
    with aws():
        assert command.main(["refresh", "--region", WEST]) == 0
    before, written = catalog.load(), catalog.parse(file.read_text())
    for name, instance in before.types.items():
        assert written.types[name].interruptions == instance.interruptions
    known = before.regions[WEST]
    assert written.regions[WEST].interruptions_source == known.interruptions_source
    assert written.regions[WEST].date != known.date and not written.regions[WEST].remembered


def test_new_bands_replace_those_of_their_regions_only() -> None:
    before = catalog.load()
    after = command.with_interruptions(before, BANDS, "a test")
    p4d = after.types["p4d.24xlarge"].interruptions
    assert (p4d[WEST], p4d["us-east-1"]) == (Band.UP_TO_5, Band.UP_TO_15)
    assert WEST not in after.types["p5.48xlarge"].interruptions
    assert after.regions[WEST].interruptions_source == "a test"
    assert after.regions["us-east-1"] == before.regions["us-east-1"]
    assert catalog.parse(data_file.text(after)) == after


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the command writes."""
    found = tmp_path / "catalog.yaml"
    monkeypatch.setattr(catalog, "DATA", found)
    monkeypatch.setattr(command, "regions", lambda names: [region(n, ANSWERS) for n in names])
    return found


def test_a_new_region_without_the_advisor_has_no_bands() -> None:
    with aws():
        after = command.refreshed(catalog.load(), [region("ap-south-1", {})], NOW)
    assert after.regions["ap-south-1"].interruptions_source == ""
    assert catalog.parse(data_file.text(after)) == after
