"""The certificates in a site's folder: the fleet's roster, and checks of the site's own certificate and key."""

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from blindsight.errors import InvalidInput
from blindsight.fleet.carriers.carrier import check_site_name
from blindsight.fleet.certificates import identity_key, party_of
from blindsight.fleet.secure_sum.identities import Party

__all__ = ["check_credentials", "is_open_to_others", "read_roster"]


def read_roster(path: Path) -> tuple[Party, ...]:
    """The sites in a roster, `{"sites": {name: certificate}}`, by name; each certificate must name its site."""
    try:
        roster: Any = json.loads(_read(path))
    except ValueError as error:
        raise InvalidInput(f"{path} is not a roster ({error}): ask the coordinator for roster.json again") from error
    sites = roster.get("sites") if isinstance(roster, dict) else None
    if not isinstance(sites, dict) or not sites:
        raise InvalidInput(f'{path} is not a roster, which is {{"sites": {{name: certificate}}}}: ask for it again')
    parties: list[Party] = []
    for name, certificate in sorted(sites.items()):
        check_site_name(name)
        if not isinstance(certificate, str) or (party := party_of(certificate.encode())).name != name:
            raise InvalidInput(f"{path} has another site's certificate for {name!r}: ask for the roster again")
        parties.append(party)
    if len({party.public_key for party in parties}) < len(parties):
        raise InvalidInput(f"{path} has one key for two sites: issue each its own certificate")
    return tuple(parties)


def check_credentials(
    name: str, roster: Sequence[Party], *, certificate: Path, key: Path, authority: Path, now: datetime.datetime
) -> datetime.datetime:
    """The end of the certificate's validity; refuses files that do not fit together.

    Args:
        name: The site's name.
        roster: All sites of the fleet.
        certificate: The site's certificate.
        key: Its private key.
        authority: The certificate of the authority.
        now: The time, with its zone.
    """
    pem = _read(certificate)
    party = party_of(pem)
    own, issuer = x509.load_pem_x509_certificate(pem), _certificate(authority)
    if party.name != name:
        raise InvalidInput(f"{certificate} is the certificate of {party.name!r}, and [site] name is {name!r}")
    if Party.of(name, identity_key(_read(key)).public_key()) != party:
        raise InvalidInput(f"{key} is not the key of {certificate}: the two files come together")
    try:
        own.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise InvalidInput(f"{certificate} was not issued by {authority}: ask for both files again") from error
    if party not in roster:
        raise InvalidInput(f"the roster does not have this site with this certificate: ask for {name}'s roster again")
    for path, one in ((certificate, own), (authority, issuer)):
        if not one.not_valid_before_utc <= now <= one.not_valid_after_utc:
            dates = f"{one.not_valid_before_utc:%Y-%m-%d} to {one.not_valid_after_utc:%Y-%m-%d}"
            raise InvalidInput(f"{path} is valid from {dates}, and today is {now:%Y-%m-%d}: renew it, or set the clock")
    return own.not_valid_after_utc


def is_open_to_others(key: Path) -> bool:
    """Whether others on this machine may read a private key; the group of a key of root's may."""
    state = key.stat()
    return state.st_mode & (0o077 if state.st_uid else 0o037) != 0


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError as error:
        raise InvalidInput(f"{path} is not a certificate in PEM ({error})") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"cannot read {path} ({error.strerror}): it belongs to the folder that the coordinator sent"
        ) from error
