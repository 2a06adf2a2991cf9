"""The instance catalog: contents of its file, and the refresh."""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws

from infra.cli import catalog as command
from infra.domain import catalog
from infra.domain.catalog import Price, data_file

NOW = datetime.datetime(2027, 1, 2, tzinfo=datetime.UTC)

FAMILIES = ("g5.", "g6.", "g6e.", "p3.", "p3dn.", "p4d.", "p4de.", "p5.", "p5e.", "p5en.")
NEWEST = ("p6-b200.48xlarge", "p6-b300.48xlarge", "p6e-gb200.36xlarge")


def types() -> list[catalog.InstanceType]:
    """Every type of the committed file."""
    return list(catalog.load().types.values())


def test_catalog_has_the_instance_families_for_training() -> None:
    names = [t.name for t in types()]
    assert all(any(name.startswith(family) for name in names) for family in FAMILIES)
    assert set(NEWEST) <= set(names)


def test_every_region_has_a_date_and_a_source() -> None:
    regions = catalog.load().regions
    assert list(regions) == ["us-east-1", "us-west-2", "eu-west-1"]
    assert all(lookup.source for lookup in regions.values())
    assert all(set(t.prices) == set(regions) for t in types())


@pytest.mark.parametrize("instance", types(), ids=lambda t: t.name)
def test_spot_is_cheaper_than_on_demand(instance: catalog.InstanceType) -> None:
    for price in instance.prices.values():
        assert price.spot_usd_hour is None or price.spot_usd_hour > 0
        if price.spot_usd_hour and price.on_demand_usd_hour:
            assert price.spot_usd_hour < price.on_demand_usd_hour


def test_type_that_a_region_does_not_offer_has_no_price_there() -> None:
    assert catalog.price("p5.48xlarge", "eu-west-1") == Price()
    assert catalog.price("p5.48xlarge", "ap-south-1") == Price()
    assert catalog.price("p5.48xlarge").on_demand_usd_hour == 55.04


def test_efa_interfaces_are_on_the_network_cards_that_support_efa() -> None:
    known = catalog.load().types
    assert known["p4d.24xlarge"].efa_card_indexes == (0, 1, 2, 3)
    assert known["p5.48xlarge"].efa_cards == 32
    assert known["p6-b300.48xlarge"].efa_card_indexes == tuple(range(1, 17))
    assert known["p3.16xlarge"].efa_cards == 0


def test_only_grace_types_are_arm64() -> None:
    arm = [t.name for t in types() if t.architecture is catalog.Architecture.ARM64]
    assert arm == ["p6e-gb200.36xlarge"]


def test_committed_catalog_is_what_a_refresh_would_write() -> None:
    assert data_file.text(catalog.load()) == catalog.DATA.read_text(encoding="utf-8")


def offer(usd: str, *, kind: str = "OnDemand", market: str = "OnDemand") -> str:
    """An entry of a price list, as the API returns it."""
    term = {
        "ABC.JRTCKXETXF": {
            "effectiveDate": "2026-12-01T00:00:00Z",
            "priceDimensions": {
                "ABC.JRTCKXETXF.6YS6EN2CT7": {"unit": "Hrs", "pricePerUnit": {"USD": usd}}
            },
        }
    }
    product = {"sku": "ABC", "attributes": {"tenancy": "Shared", "marketoption": market}}
    return json.dumps({"product": product, "terms": {kind: term}})


@contextlib.contextmanager
def aws() -> Iterator[None]:
    """Mock AWS in this process, with fake credentials."""
    with pytest.MonkeyPatch.context() as patch, mock_aws():
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        yield


def region(name: str, answers: dict[str, list[str]]) -> command.Region:
    """A region whose price list has these entries by type; other requests fail."""
    price_list = boto3.client("pricing", region_name=command.PRICE_LIST_REGION)
    stub = Stubber(price_list)
    for instance in catalog.load().types:
        fields = {
            "instanceType": instance,
            "regionCode": name,
            "operatingSystem": "Linux",
            "tenancy": "Shared",
            "capacitystatus": "Used",
            "preInstalledSw": "NA",
        }
        filters = [{"Type": "TERM_MATCH", "Field": k, "Value": v} for k, v in fields.items()]
        stub.add_response(
            "get_products",
            {"FormatVersion": "aws_v1", "PriceList": answers.get(instance, [])},
            {"ServiceCode": "AmazonEC2", "Filters": filters},
        )
    stub.activate()
    return command.Region(
        name=name, ec2=boto3.client("ec2", region_name=name), price_list=price_list
    )


ANSWERS = {
    "p4d.24xlarge": [offer("19.5000000000"), offer("0.0000000000")],
    "p5.48xlarge": [offer("9.9", kind="Reserved"), offer("31.4", market="CapacityBlock")],
}


@pytest.fixture(scope="module")
def after() -> catalog.Catalog:
    """A catalog with wrong hardware, after a refresh of us-west-2."""
    wrong = data_file.text(catalog.load()).replace("vcpu: 96", "vcpu: 95")
    wrong = wrong.replace("efaCards: [0, 1, 2, 3]", "efaCards: [0]").replace("2048", "1")
    with aws():
        return command.refreshed(catalog.parse(wrong), [region("us-west-2", ANSWERS)], NOW)


def test_refresh_updates_prices_of_its_region_only(after: catalog.Catalog) -> None:
    before = catalog.load()
    p4d = after.types["p4d.24xlarge"]
    assert p4d.prices["us-west-2"].on_demand_usd_hour == 19.5
    assert p4d.prices["us-west-2"].spot_usd_hour == 0.0  # moto sells everything for 0.00001
    assert p4d.prices["us-east-1"] == before.types["p4d.24xlarge"].prices["us-east-1"]
    assert after.regions["us-west-2"].date == NOW.date()
    assert after.regions["us-east-1"] == before.regions["us-east-1"]


def test_type_that_left_the_region_loses_its_prices_only(
    after: catalog.Catalog,
) -> None:
    before, now = catalog.load().types["p3.16xlarge"], after.types["p3.16xlarge"]
    assert now.prices["us-west-2"] == Price()
    assert (now.vcpu, now.gpus, now.memory_gib) == (before.vcpu, before.gpus, 488)


def test_reservation_and_capacity_block_prices_are_ignored(after: catalog.Catalog) -> None:
    assert after.types["p5.48xlarge"].prices["us-west-2"].on_demand_usd_hour is None


def test_hardware_is_what_ec2_describes(after: catalog.Catalog) -> None:
    for name, right in catalog.load().types.items():
        for field in ("vcpu", "memory_gib", "gpus", "efa_card_indexes", "nvme_gb", "network_gbps"):
            assert getattr(after.types[name], field) == getattr(right, field), (name, field)


def test_efa_interfaces_are_derived_where_ec2_does_not_list_them() -> None:
    row = {
        "VCpuInfo": {"DefaultVCpus": 192},
        "MemoryInfo": {"SizeInMiB": 2097152},
        "NetworkInfo": {"NetworkCards": [{}], "EfaInfo": {"MaximumEfaInterfaces": 32}},
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
    }
    assert command.hardware(row)["efa_card_indexes"] == tuple(range(32))


def test_command_without_credentials_reports_one_line_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file: Any = tmp_path / "catalog.yaml"
    monkeypatch.setattr(catalog, "DATA", file)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    assert command.main(["refresh"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "AWS: got Unable to locate credentials; nothing was changed\n"
    assert not file.exists()
