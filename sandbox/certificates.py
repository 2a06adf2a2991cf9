"""The control plane's certificate authority: kept between runs, renewed before it expires.

One CA in `State.pki` (mode 0700, keys 0600) signs everything. A certificate is reissued when it expires within
`RENEW_BEFORE`, was signed by another CA, or has a different subject or hosts.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFETIME = dt.timedelta(days=3650)
LIFETIME = dt.timedelta(days=365)
RENEW_BEFORE = dt.timedelta(days=30)

_Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class Identity:
    """Subject of a certificate. `hosts`: names and addresses of a server; empty for a client."""

    name: str
    common_name: str
    organization: str = ""
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class KeyPair:
    certificate: Path
    key: Path


class CertificateAuthority:
    """The CA of one sandbox and the certificates that it issued."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        self.pair = KeyPair(folder / "ca.crt", folder / "ca.key")
        if not self.pair.certificate.exists() or _expires_soon(_read(self.pair.certificate)):
            self._make_ca()
        self._certificate = _read(self.pair.certificate)
        self._key = _read_key(self.pair.key)

    def issue(self, identity: Identity) -> KeyPair:
        """Return the certificate of `identity`; issue or renew it if necessary."""
        pair = KeyPair(self._folder / f"{identity.name}.crt", self._folder / f"{identity.name}.key")
        if not self._is_valid(pair, identity):
            self._sign(pair, identity)
        return pair

    def service_account_key(self) -> KeyPair:
        """Return the RSA pair that signs service account tokens; `certificate` is the public key."""
        pair = KeyPair(self._folder / "sa.pub", self._folder / "sa.key")
        if not pair.certificate.exists():
            key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            write_private(pair.key, _private_bytes(key))
            public = key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            write_private(pair.certificate, public)
        return pair

    def _make_ca(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "trainyard-sandbox-ca")])
        builder = _builder(name, name, key, CA_LIFETIME)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        builder = builder.add_extension(_usage(ca=True), critical=True)
        write_private(self.pair.key, _private_bytes(key))
        write_private(self.pair.certificate, _certificate_bytes(builder.sign(key, hashes.SHA256())))

    def _sign(self, pair: KeyPair, identity: Identity) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_subject(identity), self._certificate.subject, key, LIFETIME)
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if identity.hosts:
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names = x509.SubjectAlternativeName([_general_name(host) for host in identity.hosts])
            builder = builder.add_extension(names, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        builder = builder.add_extension(_usage(ca=False), critical=True)
        write_private(pair.key, _private_bytes(key))
        write_private(
            pair.certificate, _certificate_bytes(builder.sign(self._key, hashes.SHA256()))
        )

    def _is_valid(self, pair: KeyPair, identity: Identity) -> bool:
        if not (pair.certificate.exists() and pair.key.exists()):
            return False
        certificate = _read(pair.certificate)
        try:
            certificate.verify_directly_issued_by(self._certificate)
            _require_matching_key(certificate, pair.key)
        except Exception:  # any failed check means: reissue
            return False
        same = certificate.subject == _subject(identity)
        same = same and _hosts(certificate) == set(identity.hosts)
        return same and not _expires_soon(certificate)


def signing_request(identity: Identity) -> tuple[bytes, bytes]:
    """Return a certificate signing request of a client, and its new key (PEM)."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder(_subject(identity))
    request = builder.sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM), _private_bytes(key)


def _subject(identity: Identity) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, identity.common_name)]
    if identity.organization:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, identity.organization))
    return x509.Name(parts)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: _Key, lifetime: dt.timedelta
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=15))
        .not_valid_after(now + lifetime)
    )


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _hosts(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in names}


def _expires_soon(certificate: x509.Certificate) -> bool:
    return certificate.not_valid_after_utc - dt.datetime.now(dt.UTC) < RENEW_BEFORE


def _require_matching_key(certificate: x509.Certificate, key: Path) -> None:
    if _read_key(key).public_key() != certificate.public_key():
        raise ValueError("the key belongs to another certificate")


def _read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def _read_key(path: Path) -> _Key:
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{path}: not an elliptic curve key")
    return key


def _private_bytes(key: _Key | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _certificate_bytes(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def write_private(path: Path, data: bytes) -> None:
    """Write a file atomically, with mode 0600 from the start."""
    partial = path.with_suffix(path.suffix + ".partial")
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as out:
        out.write(data)
    partial.rename(path)
