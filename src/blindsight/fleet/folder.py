"""The folder of a fleet: its roster, the keys of the coordinator and the server, and the files for each site.

::

    hospitals/
      fleet.toml        `FleetSettings`
      roster.json       {"sites": {name: certificate}}: public; each site has its own copy
      nats.conf         made from the two above
      authority/        certificate.pem, key.pem      whoever has this key can be any site
      server/           certificate.pem, key.pem
      coordinator/      certificate.pem, key.pem
      sites/NAME/       sent to this site and to nobody else

The coordinator needs neither `authority/key.pem` nor `sites/`: somebody else may issue the certificates.
"""

import contextlib
import dataclasses
import datetime
import hashlib
import json
import os
import random
import re
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from cryptography import x509

from blindsight.config import from_table, read_toml
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.fleet.carriers.carrier import COORDINATOR, Carrier, check_site_name
from blindsight.fleet.carriers.lines import is_flower, line
from blindsight.fleet.certificates import Authority, Issued, identity_key, party_of, server_configuration
from blindsight.fleet.secure_sum.identities import Party, Signer, signer
from blindsight.fleet.secure_sum.refusals import Reason, Refused
from blindsight.fleet.secure_sum.terms import FEWEST_SITES, least_threshold
from blindsight.fleet.site_files import replace_key, write_site_files
from blindsight.runs import write_whole

__all__ = ["PORT", "FleetFolder", "FleetSettings", "free_port", "read_roster"]

PORT = 4222
"""Where NATS servers listen by default."""

_PORTS = range(10_000, 32_768)

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?):([0-9]{1,5})")

_FLEET_TOML = """\
# A fleet of sites. `blindsight fleet add` and `revoke` rewrite this file.
name = {name}
server = {server}  # where sites and the coordinator connect
sites = {sites}
noise = {noise}  # "sites": each adds a share, nobody sees a sum without noise; "coordinator" is trusted to add it
colluding = {colluding}  # with noise at the sites: how many of them may tell others their share
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FleetSettings:
    """The keys of fleet.toml."""

    name: str
    server: str
    sites: tuple[str, ...]
    noise: Literal["sites", "coordinator"] = "sites"
    colluding: int = 1

    def __post_init__(self) -> None:
        check_site_name(self.name)
        for site in self.sites:
            check_site_name(site)
            if site == "server":
                raise InvalidInput("a site cannot be called 'server', which is the NATS server: choose another name")
        if len(set(self.sites)) < len(self.sites) or not self.sites:
            raise InvalidInput(f"a fleet needs sites with different names, got {', '.join(self.sites) or 'none'}")
        if is_flower(self.server):
            return
        address = _ADDRESS.fullmatch(self.server)
        if address is None or not 0 < int(address[3]) < 65536:
            raise InvalidInput(f"server must be an address such as fleet.example.org:{PORT}, got {self.server!r}")

    @property
    def url(self) -> str:
        """The address of the server, and what carries to it."""
        return self.server if is_flower(self.server) else f"tls://{self.server}"

    @property
    def port(self) -> int:
        """The port of the server."""
        return int(self.server.rpartition(":")[2])

    @property
    def listening(self) -> str:
        """Where the server listens: on every interface, unless sites connect to this machine's own address."""
        host = self.server.rpartition(":")[0]
        own, every = ("[::1]", "[::]") if host.startswith("[") else ("127.0.0.1", "0.0.0.0")
        return f"{own if host in ('localhost', own) else every}:{self.port}"

    def check_noise(self) -> None:
        """Refuse noise at the sites if there are too few of them."""
        if self.noise == "coordinator":
            return
        sites = len(self.sites)
        if sites < FEWEST_SITES:
            raise Refused(
                Reason.TOO_FEW_SITES,
                f"noise at the sites needs {FEWEST_SITES} sites, and {self.name} has {sites}, {', '.join(self.sites)}: "
                f'add sites, or choose noise = "coordinator", who then sees sums before it adds noise to them',
            )
        most = 2 * least_threshold(sites) - sites - 1
        if not 0 <= self.colluding <= most:
            raise InvalidInput(f"of {sites} sites 0 to {most} may collude, got colluding = {self.colluding}")


@dataclasses.dataclass(frozen=True)
class FleetFolder:
    """A fleet as its folder describes it; `roster` has the certificate of every site, in PEM."""

    path: Path
    settings: FleetSettings
    roster: Mapping[str, bytes]

    @classmethod
    def init(
        cls,
        path: str | Path,
        *,
        sites: Sequence[str],
        hosts: Sequence[str] = ("127.0.0.1",),
        port: int = PORT,
        name: str | None = None,
        noise: Literal["sites", "coordinator"] = "sites",
        colluding: int = 1,
    ) -> Self:
        """Make the folder of a new fleet, with fresh keys for everybody.

        Args:
            path: A folder that does not exist, or is empty.
            sites: Names of the sites.
            hosts: Host names and addresses of the server; sites connect to the first.
            port: Port of the server; 0 chooses one that is free on this machine.
            name: Name of the fleet; default: that of the folder.
            noise: `sites`, or `coordinator` for fewer than three sites.
            colluding: Number of sites that may disclose their shares of noise.
        """
        folder = Path(path)
        if folder.is_dir() and any(folder.iterdir()):
            raise InvalidInput(f"{folder} is not empty, and keys are never overwritten: choose another folder")
        host = f"[{hosts[0]}]" if ":" in hosts[0] else hosts[0]
        settings = FleetSettings(
            name=name or re.sub("[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")[:40],
            server=f"{host}:{port or free_port()}",
            sites=tuple(sites),
            noise=noise,
            colluding=colluding,
        )
        settings.check_noise()
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
            try:
                _write_new(scratch, settings, hosts)
                os.replace(scratch, folder)  # whole or not at all
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        except OSError as error:
            raise BlindsightError(f"cannot make {folder} ({error.strerror}): choose another folder") from error
        return cls.read(folder)

    @classmethod
    def read(cls, path: str | Path, *, to_ask: bool = True) -> Self:
        """The fleet in a folder. Unless it is `to_ask` questions, the roster alone says which sites there are."""
        folder = Path(path)
        table = read_toml(folder / "fleet.toml", "a folder that blindsight fleet init made")
        try:
            settings = from_table(FleetSettings, table)
        except InvalidInput as error:
            raise InvalidInput(f"{folder / 'fleet.toml'}: {error}") from None
        roster = read_roster(folder / "roster.json")
        if to_ask and set(roster) != set(settings.sites):
            raise InvalidInput(
                f"{folder} names the sites {', '.join(settings.sites)} in fleet.toml and {', '.join(roster)} in "
                f"roster.json: change sites with blindsight fleet add and revoke, and make fleet.toml agree"
            )
        if to_ask:
            settings.check_noise()
        return cls(folder, dataclasses.replace(settings, sites=tuple(roster)), roster)

    @property
    def parties(self) -> tuple[Party, ...]:
        """All sites with their public keys."""
        return tuple(party_of(certificate) for certificate in self.roster.values())

    def is_revoked(self, site: str) -> bool:
        """Whether the certificate that this roster has of a site was revoked or replaced since, or has expired."""
        now = read_roster(self.path / "roster.json").get(site)
        ends = x509.load_pem_x509_certificate(self.roster[site]).not_valid_after_utc
        return now != self.roster[site] or datetime.datetime.now(datetime.UTC) > ends

    def connect(self) -> Carrier:
        """The coordinator's end of the lines to all sites."""
        own = self.path / COORDINATOR
        return line(
            self.settings.url,
            COORDINATOR,
            folder=self.path,
            authority=self.path / "authority/certificate.pem",
            certificate=own / "certificate.pem",
            key=own / "key.pem",
        )

    def signer(self) -> Signer:
        """Signs as the coordinator."""
        return signer(identity_key((self.path / COORDINATOR / "key.pem").read_bytes()))

    def with_roster(self, roster: Mapping[str, bytes]) -> Self:
        """The fleet with these sites, on disk: the roster, what the server lets in, and the settings."""
        settings = dataclasses.replace(self.settings, sites=tuple(roster))
        changed = dataclasses.replace(self, settings=settings, roster=dict(roster))
        _write_roster(self.path, roster)
        changed.write_server_configuration()
        values = {key: json.dumps(value) for key, value in dataclasses.asdict(settings).items()}
        write_whole(self.path / "fleet.toml", _FLEET_TOML.format(**values))
        return changed

    def write_server_configuration(self) -> None:
        """Write nats.conf if it changes: the server admits the coordinator and the roster's sites, nobody else."""
        if is_flower(self.settings.server):
            return  # who may connect is settled with Flower
        own = (self.path / COORDINATOR / "certificate.pem").read_bytes()
        text = server_configuration({COORDINATOR: own, **self.roster}, address=self.settings.listening)
        if not (path := self.path / "nats.conf").exists() or path.read_text(encoding="utf-8") != text:
            write_whole(path, text)

    def roster_fingerprint(self) -> str:
        """What `sha256sum roster.json` prints, for people to compare by telephone."""
        return hashlib.sha256((self.path / "roster.json").read_bytes()).hexdigest()


def read_roster(path: Path) -> dict[str, bytes]:
    """The certificate of every site, in PEM, from a `roster.json`; each names its site, or all are refused."""
    try:
        sites: Any = json.loads(path.read_text(encoding="utf-8"))["sites"]
        roster = {str(name): str(certificate).encode() for name, certificate in sites.items()}
    except OSError as error:
        raise InvalidInput(f"cannot read {path} ({error.strerror}): it comes with the certificates") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInput(f"{path} is not a roster: copy it from the fleet's folder again") from error
    for name, certificate in roster.items():
        if party_of(certificate).name != name:
            raise InvalidInput(
                f"{path} has another site's certificate under {name!r}: copy the roster from the fleet's folder again"
            )
    return roster


def _write_new(folder: Path, settings: FleetSettings, hosts: Sequence[str]) -> None:
    authority = Authority.new(settings.name)
    for name, issued in (
        ("authority", Issued(authority.pem, authority.key_pem)),
        ("server", authority.server(hosts)),
        (COORDINATOR, authority.party(COORDINATOR)),
    ):
        replace_key(folder / name, issued)
    roster: dict[str, bytes] = {}
    for site in settings.sites:
        issued = authority.party(site)
        roster[site] = issued.certificate
        write_site_files(
            folder / "sites" / site, site, settings.name, settings.url, issued, authority.pem, settings.noise
        )
    FleetFolder(folder, settings, roster).with_roster(roster)


def _write_roster(folder: Path, roster: Mapping[str, bytes]) -> None:
    """Write the roster, from which everything else follows, also into the files of sites that are still here."""
    sites = {"sites": {name: certificate.decode() for name, certificate in roster.items()}}
    text = json.dumps(sites, indent=2) + "\n"
    write_whole(folder / "roster.json", text)
    for site in roster:
        if (folder / "sites" / site).is_dir():
            write_whole(folder / "sites" / site / "roster.json", text)


def free_port() -> int:
    """A port that is free on this machine, below those that systems give to outgoing connections.

    One of these may be taken whenever the server is not running, even by a site that tries to reach it.
    """
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        with contextlib.suppress(OSError), socket.socket() as free:
            free.bind(("127.0.0.1", port))
            return port
    raise BlindsightError("no port of this machine is free: name one with --port")
