"""Identities of a fleet: one authority, a certificate for every party, and the server's permissions for each.

A party's name is the only DNS name in its certificate. The certificate's subject, which holds the fingerprint of its
key, is its user at the NATS server. So the certificate alone decides who sends. Certificates of sites cannot be used as
a server's, nor the server's as a site's.
"""

import dataclasses
import datetime
import hashlib
import ipaddress
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from blindsight.errors import InvalidInput
from blindsight.fleet.carriers.carrier import COORDINATOR
from blindsight.fleet.secure_sum.identities import Party

__all__ = ["Authority", "Issued", "hosts_of", "identity_key", "party_of", "server_configuration", "write_secret"]

_DAYS = 398
_AUTHORITY_DAYS = 3650
_EARLIER = datetime.timedelta(days=1)  # clocks differ


@dataclasses.dataclass(frozen=True)
class Issued:
    """A certificate and its private key, in PEM."""

    certificate: bytes
    key: bytes


@dataclasses.dataclass(frozen=True)
class Authority:
    """Issues the certificates of one fleet."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def new(cls, name: str) -> "Authority":
        """An authority with a fresh key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Blindsight fleet {name}"[:64])])
        builder = _builder(subject, subject, key.public_key(), _AUTHORITY_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(is_authority=True), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        return cls(builder.add_extension(identifier, critical=False).sign(key, hashes.SHA256()), key)

    @classmethod
    def read(cls, folder: Path) -> "Authority":
        """The authority in a folder with its certificate and key."""
        try:
            certificate = x509.load_pem_x509_certificate((folder / "certificate.pem").read_bytes())
            return cls(certificate, identity_key((folder / "key.pem").read_bytes()))
        except OSError as error:
            raise InvalidInput(
                f"cannot read {error.filename} ({error.strerror}): only the holder of the authority's key can "
                f"issue certificates"
            ) from error

    @property
    def pem(self) -> bytes:
        """The authority's certificate."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The authority's private key: whoever has it can be any site."""
        return _pem(self.key)

    def party(self, name: str) -> Issued:
        """A certificate of the coordinator or a site, for use as a client only."""
        return self._issue(name, [x509.DNSName(name)], ExtendedKeyUsageOID.CLIENT_AUTH)

    def server(self, hosts: Sequence[str]) -> Issued:
        """A certificate of the NATS server at these host names and addresses."""
        return self._issue("server", [_host(host) for host in hosts], ExtendedKeyUsageOID.SERVER_AUTH)

    def _issue(self, name: str, names: list[x509.GeneralName], use: x509.ObjectIdentifier) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        unit = x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, _fingerprint(key.public_key()))
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name), unit])
        builder = _builder(subject, self.certificate.subject, key.public_key(), _DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=True)
        builder = builder.add_extension(_usage(is_authority=False), critical=True)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        certificate = builder.add_extension(issuer, critical=False).sign(self.key, hashes.SHA256())
        return Issued(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def party_of(certificate: bytes) -> Party:
    """The party that a certificate in PEM names."""
    try:
        loaded = x509.load_pem_x509_certificate(certificate)
        alternative = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uses = loaded.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (ValueError, x509.ExtensionNotFound) as error:
        raise InvalidInput(f"not a certificate of a site in PEM ({error})") from error
    names, key = alternative.get_values_for_type(x509.DNSName), loaded.public_key()
    is_client = list(uses) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    if not is_client or len(names) != 1 or len(alternative) != 1 or not isinstance(key, ec.EllipticCurvePublicKey):
        raise InvalidInput(
            "a site's certificate is a client's, with one DNS name, the site's, and an ECDSA key: issue another one"
        )
    return Party.of(names[0], key)


def identity_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """The private key of a certificate."""
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"not a private key in PEM without a password ({error})") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InvalidInput("the key of a site's certificate must be an ECDSA key: issue another one")
    return key


def hosts_of(certificate: bytes) -> list[str]:
    """The host names and addresses in a server's certificate."""
    loaded = x509.load_pem_x509_certificate(certificate)
    names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names if isinstance(name, x509.DNSName | x509.IPAddress)]


def server_configuration(certificates: Mapping[str, bytes], *, address: str) -> str:
    """The NATS server's configuration: mutual TLS, one user for each certificate, and its subjects; nothing is stored.

    A user is the whole subject of a certificate, which names its key. So a replaced certificate
    belongs to no user: once the server reads this again, it closes that certificate's connections and refuses new ones.

    Args:
        certificates: The coordinator's certificate and those of the sites, in PEM.
        address: Where the server listens, `HOST:PORT`. Paths are relative to the folder where it is started.
    """
    users = [_user(name, certificate) for name, certificate in certificates.items()]
    return "\n".join(
        [
            f'listen: "{address}"',
            "max_payload: 1048576",
            "max_pending: 536870912",
            'write_deadline: "30s"',
            "tls {",
            '  cert_file: "server/certificate.pem"',
            '  key_file: "server/key.pem"',
            '  ca_file: "authority/certificate.pem"',
            "  verify_and_map: true",
            "  timeout: 10",
            "}",
            "authorization {",
            "  users = [",
            *users,
            "  ]",
            "}",
            "",
        ]
    )


def write_secret(path: Path, data: bytes) -> None:
    """Write a new file that nobody else on this machine may read; one that exists is not overwritten."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)


def _user(name: str, certificate: bytes) -> str:
    subject = x509.load_pem_x509_certificate(certificate).subject.rfc4514_string()
    publish, subscribe = f"blindsight.from.{name}", f"blindsight.to.{name}"
    if name == COORDINATOR:
        publish, subscribe = "blindsight.to.*", "blindsight.from.*"
    return f'    {{user: "{subject}", permissions: {{publish: ["{publish}"], subscribe: ["{subscribe}"]}}}}'


def _fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    encoded = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(encoded).hexdigest()


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
