"""Sites that join, leave, or get a new key: changes in the fleet's folder, and what to send to whom."""

import contextlib
import dataclasses
from collections.abc import Generator
from pathlib import Path

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.fleet.carriers.carrier import COORDINATOR
from blindsight.fleet.certificates import Authority, hosts_of
from blindsight.fleet.folder import FleetFolder
from blindsight.fleet.site_files import replace_key, write_site_files
from blindsight.runs import locked

__all__ = ["Parcel", "add", "everything", "revoke", "rotate"]

SERVER = "server"


@dataclasses.dataclass(frozen=True)
class Parcel:
    """A file or folder to send; `is_secret` if only the receiver may see it."""

    path: Path
    receiver: str
    is_secret: bool


def everything(fleet: FleetFolder) -> list[Parcel]:
    """Everything that the sites of a new fleet are sent."""
    return [_all_files(fleet.path, site) for site in fleet.roster]


def add(folder: Path, site: str) -> list[Parcel]:
    """Issue a certificate to a new site; everybody needs the new roster."""
    with _alone(folder) as fleet:
        authority = Authority.read(folder / "authority")
        if site in fleet.roster:
            raise InvalidInput(f"{site!r} is in the fleet already: blindsight fleet rotate gives it a new key")
        settings = dataclasses.replace(fleet.settings, sites=(*fleet.roster, site))  # refuses impossible names
        place, issued = folder / "sites" / site, authority.party(site)
        write_site_files(place, site, settings.name, settings.url, issued, authority.pem, settings.noise)
        changed = fleet.with_roster({**fleet.roster, site: issued.certificate})
    return [_all_files(folder, site), *_rosters(changed, less=site)]


def rotate(folder: Path, name: str) -> list[Parcel]:
    """Issue a new certificate and key to a site, the coordinator or the server; the old ones are refused at once."""
    with _alone(folder) as fleet:
        authority = Authority.read(folder / "authority")
        if name == SERVER:
            replace_key(folder / SERVER, authority.server(hosts_of((folder / SERVER / "certificate.pem").read_bytes())))
            return []
        issued = authority.party(name)
        if name == COORDINATOR:
            replace_key(folder / COORDINATOR, issued)
            fleet.write_server_configuration()
            return []
        _check_member(fleet, name)
        replace_key(folder / "sites" / name, issued)
        changed = fleet.with_roster({**fleet.roster, name: issued.certificate})
    files = ("certificate.pem", "key.pem")
    own = [Parcel(folder / "sites" / name / file, name, file == "key.pem") for file in files]
    return [*own, *_rosters(changed)]


def revoke(folder: Path, site: str) -> list[Parcel]:
    """Remove a site from the fleet: the server refuses it, and no roster names it."""
    with _alone(folder) as fleet:
        _check_member(fleet, site)
        if len(fleet.roster) == 1:
            raise InvalidInput(f"{site!r} is the only site: stop the server instead, and delete {folder}")
        changed = fleet.with_roster({name: kept for name, kept in fleet.roster.items() if name != site})
    return _rosters(changed)


@contextlib.contextmanager
def _alone(folder: Path) -> Generator[FleetFolder]:
    """The fleet, locked against other processes; files left by an interrupted change are made to match the roster."""
    FleetFolder.read(folder, to_ask=False)
    with locked(folder / ".lock", BlindsightError(f"another process is changing {folder}: wait for it")):
        fleet = FleetFolder.read(folder, to_ask=False)
        yield fleet.with_roster(fleet.roster)


def _check_member(fleet: FleetFolder, site: str) -> None:
    if site not in fleet.roster:
        raise InvalidInput(f"{fleet.settings.name} has no site {site!r}: there are {', '.join(fleet.roster)}")


def _all_files(folder: Path, site: str) -> Parcel:
    return Parcel(folder / "sites" / site, site, is_secret=True)


def _rosters(fleet: FleetFolder, *, less: str = "") -> list[Parcel]:
    """The new roster for all sites, which take parties from nobody else."""
    return [Parcel(fleet.path / "roster.json", site, is_secret=False) for site in fleet.roster if site != less]
