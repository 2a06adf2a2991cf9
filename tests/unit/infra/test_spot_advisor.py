"""Interruption bands of AWS' Spot Instance Advisor: the catalog's, its refresh, and bad data."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from infra.cli import catalog as command
from infra.cli import catalog_refresh, spot_advisor
from infra.cli.spot_advisor import AdvisorError
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


@dataclass
class Server:
    """A server on loopback with one document, which answers everything with one status."""

    data: bytes = b""
    status: int = 200
    url: str = ""


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server(data=json.dumps(document(**LISTED)).encode())

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(found.status)
            self.send_header("Content-Length", str(len(found.data)))
            self.end_headers()
            self.wfile.write(found.data)

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{http.server_port}/spot-advisor-data.json"
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield found
    http.shutdown()
    http.server_close()


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


def test_bands_are_read_from_a_server_and_from_a_file(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "advisor.json"
    file.write_bytes(server.data)
    for source in (server.url, str(file)):
        assert spot_advisor.bands(spot_advisor.read(source), [WEST]) == BANDS


def changed(**changes: Any) -> bytes:
    return json.dumps(document(**LISTED) | changes).encode()


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"", "format"),
        (b"{", "format"),
        (b"[]", "format"),
        (b"<html>", "format"),
        (changed(spot_advisor={WEST: {}}), f"spot_advisor.{WEST}.Linux"),
        (changed(spot_advisor={WEST: {"Linux": {"g5.xlarge": {"s": 1}}}}), "g5.xlarge.r"),
        (changed(ranges=[{"index": 0, "label": ">30%"}]), "ranges.0.label"),
        (changed(ranges=[]), "no range 0, which it names for p4d.24xlarge in us-west-2"),
        (changed(spot_advisor={}), "does not list the region us-west-2"),
    ],
)
def test_data_of_another_format_is_refused_in_one_line(data: bytes, named: str) -> None:
    with pytest.raises(AdvisorError) as caught:
        spot_advisor.bands(data, [WEST])
    assert named in str(caught.value) and "\n" not in str(caught.value)


def test_a_refusing_server_is_an_error(server: Server) -> None:
    server.status = 403
    with pytest.raises(AdvisorError, match="HTTP 403"):
        spot_advisor.read(server.url)


def test_an_endless_answer_is_cut(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spot_advisor, "MOST_BYTES", len(server.data))
    assert spot_advisor.read(server.url) == server.data
    server.data += b" "
    with pytest.raises(AdvisorError, match="it has over"):
        spot_advisor.read(server.url)


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("http://mirror.test/advisor.json", "requires https"),
        ("file:///etc/hostname", "requires https"),
        ("https://", "protocol|host"),
        ("missing.json", "not readable: No such file"),
        (".", "not readable: Is a directory"),
    ],
)
def test_a_bad_source_is_an_error(source: str, named: str) -> None:
    with pytest.raises(AdvisorError, match=named):
        spot_advisor.read(source)


def test_new_bands_replace_those_of_their_regions_only() -> None:
    before = catalog.load()
    after = catalog_refresh.with_interruptions(before, BANDS, "a test")
    p4d = after.types["p4d.24xlarge"].interruptions
    assert (p4d[WEST], p4d["us-east-1"]) == (Band.UP_TO_5, Band.UP_TO_15)
    assert WEST not in after.types["p5.48xlarge"].interruptions
    assert after.regions[WEST].interruptions_source == "a test"
    assert after.regions["us-east-1"] == before.regions["us-east-1"]
    assert catalog.parse(data_file.text(after)) == after


def test_a_changed_band_is_reported() -> None:
    before = catalog.load()
    found = catalog_refresh.changes(
        before, catalog_refresh.with_interruptions(before, BANDS, "a test")
    )
    assert "p4d.24xlarge us-west-2 interruptions: >20% -> <5%" in found
    assert "p5.48xlarge us-west-2 interruptions: 5-10% -> None" in found
    assert not [line for line in found if "g5.xlarge" in line or WEST not in line]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the command writes."""
    found = tmp_path / "catalog.yaml"
    monkeypatch.setattr(catalog, "DATA", found)
    monkeypatch.setattr(command, "regions", lambda names: [region(n, ANSWERS) for n in names])
    return found


def test_the_refresh_writes_bands_and_prices(
    server: Server, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with aws():
        assert command.main(["refresh", "--region", WEST, "--advisor", server.url]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "p4d.24xlarge us-west-2 interruptions: >20% -> <5%\n" in shown.out
    assert "p4d.24xlarge us-west-2 on_demand_usd_hour: 21.95764 -> 19.5\n" in shown.out
    written = catalog.parse(file.read_text())
    assert written.types["p4d.24xlarge"].interruptions[WEST] is Band.UP_TO_5
    source = written.regions[WEST].interruptions_source
    assert source.startswith("AWS' Spot Instance Advisor, a copy that was read on 20")


def test_without_the_advisor_prices_are_refreshed_and_bands_kept(
    server: Server, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.status = 500
    with aws():
        assert command.main(["refresh", "--region", WEST, "--advisor", server.url]) == 0
    shown = capsys.readouterr()
    assert shown.err == f"{server.url}: HTTP 500; interruption bands are kept\n"
    assert "p4d.24xlarge us-west-2 on_demand_usd_hour: 21.95764 -> 19.5\n" in shown.out
    before, written = catalog.load(), catalog.parse(file.read_text())
    for name, instance in before.types.items():
        assert written.types[name].interruptions == instance.interruptions
    source = before.regions[WEST].interruptions_source
    assert written.regions[WEST].interruptions_source == source
    assert written.regions[WEST].date != before.regions[WEST].date


def test_a_new_region_without_the_advisor_has_no_bands() -> None:
    with aws():
        after = catalog_refresh.refreshed(catalog.load(), [region("ap-south-1", {})], NOW)
    assert after.regions["ap-south-1"].interruptions_source == ""
    assert catalog.parse(data_file.text(after)) == after
