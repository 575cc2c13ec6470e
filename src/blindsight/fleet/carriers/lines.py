"""`line`: a party's end of the lines at an address, whichever carrier that means.

========================  ===========================================================
`tls://host:port`         a NATS server with mutual TLS
`flower:path/to/socket`   a socket of this machine, where Flower brings and fetches
========================  ===========================================================
"""

from collections.abc import Callable
from pathlib import Path

from blindsight.errors import InvalidInput
from blindsight.fleet.carriers.carrier import COORDINATOR, Carrier

__all__ = ["FLOWER", "is_flower", "line"]

FLOWER = "flower:"


def is_flower(address: str) -> bool:
    """Whether Flower carries what is sent to this address."""
    return address.startswith(FLOWER) and len(address) > len(FLOWER)


def line(
    address: str,
    name: str,
    *,
    folder: Path,
    authority: Path,
    certificate: Path,
    key: Path,
    note: Callable[[str], None] = lambda words: None,
) -> Carrier:
    """A party's end.

    Args:
        address: Where to connect, or to listen.
        name: The party.
        folder: Where the path of a socket begins.
        authority: Certificate of the authority.
        certificate: The party's certificate.
        key: Its private key.
        note: Told, in words, when a connection breaks, is refused, and is there again.
    """
    if is_flower(address):
        from blindsight.fleet.carriers.over_flower import CoordinatorOverFlower, SiteOverFlower

        path = folder / address.removeprefix(FLOWER)
        return CoordinatorOverFlower(path) if name == COORDINATOR else SiteOverFlower(name, path)
    try:
        from blindsight.fleet.carriers.over_nats import OverNats, tls_context
    except ModuleNotFoundError as error:
        raise InvalidInput(f"a fleet needs the package {error.name}: pip install 'blindsight[fleet]'") from None
    return OverNats(address, name, tls_context(authority, certificate, key), note)
