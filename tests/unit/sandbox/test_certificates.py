"""The sandbox's certificates are kept while they are good and renewed when they are not."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509

from sandbox import certificates
from sandbox.certificates import CertificateAuthority, Identity

SERVER = Identity("server", "some-server", hosts=("127.0.0.1", "localhost"))


def test_a_certificate_is_kept_between_two_runs(tmp_path: Path) -> None:
    first = CertificateAuthority(tmp_path / "pki").issue(SERVER).certificate.read_bytes()
    assert CertificateAuthority(tmp_path / "pki").issue(SERVER).certificate.read_bytes() == first


def test_expiring_certificate_is_reissued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "LIFETIME", dt.timedelta(days=20))
    old = CertificateAuthority(tmp_path / "pki").issue(SERVER).certificate.read_bytes()
    monkeypatch.undo()
    new = CertificateAuthority(tmp_path / "pki").issue(SERVER).certificate.read_bytes()
    assert new != old
    left = x509.load_pem_x509_certificate(new).not_valid_after_utc - dt.datetime.now(dt.UTC)
    assert left > dt.timedelta(days=300)


def test_a_new_authority_replaces_every_certificate_of_the_old_one(tmp_path: Path) -> None:
    old = CertificateAuthority(tmp_path / "pki").issue(SERVER).certificate.read_bytes()
    (tmp_path / "pki" / "ca.crt").unlink()
    authority = CertificateAuthority(tmp_path / "pki")
    new = x509.load_pem_x509_certificate(authority.issue(SERVER).certificate.read_bytes())
    ca = x509.load_pem_x509_certificate(authority.pair.certificate.read_bytes())
    new.verify_directly_issued_by(ca)
    assert old != authority.issue(SERVER).certificate.read_bytes()


def test_certificate_of_another_authority_is_reissued(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path / "pki")
    old = authority.issue(SERVER).certificate.read_bytes()
    renamed = replace(SERVER, common_name="another-server", organization="system:masters")
    new = authority.issue(renamed).certificate.read_bytes()
    assert new != old
    assert "another-server" in x509.load_pem_x509_certificate(new).subject.rfc4514_string()
    assert authority.issue(renamed).certificate.read_bytes() == new


def test_a_server_certificate_names_its_loopback_address(tmp_path: Path) -> None:
    pair = CertificateAuthority(tmp_path / "pki").issue(SERVER)
    names = x509.load_pem_x509_certificate(pair.certificate.read_bytes()).extensions
    found = names.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(name.value) for name in found} == {"127.0.0.1", "localhost"}


def test_keys_can_be_read_by_their_owner_only(tmp_path: Path) -> None:
    pair = CertificateAuthority(tmp_path / "pki").issue(SERVER)
    assert pair.key.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "pki").stat().st_mode & 0o777 == 0o700
