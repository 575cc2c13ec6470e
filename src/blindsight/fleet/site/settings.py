"""SITE.toml: a site's identity, data and policy. The file's folder holds everything else."""

import dataclasses
import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from blindsight.config import DataSettings, from_table, json_schema, read_toml
from blindsight.config.tables import require
from blindsight.errors import InvalidInput
from blindsight.fleet.carriers.carrier import check_site_name
from blindsight.fleet.carriers.lines import is_flower
from blindsight.fleet.site.policy import Policy
from blindsight.fleet.wire import MOST_CLIENTS

if TYPE_CHECKING:
    from blindsight.fleet.secure_sum.identities import Party

__all__ = ["SiteIdentity", "SiteSettings", "site_schema"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SiteIdentity:
    """[site]: its name, the server, its number of clients, and its files, relative to the folder of SITE.toml."""

    name: str
    server: str  # of NATS: "tls://host:port"
    clients: int  # declared, public: nothing that is counted in the data leaves
    certificate: str = "certificate.pem"
    key: str = "key.pem"
    authority: str = "authority.pem"
    roster: str = "roster.json"  # the names and certificates of all sites
    state: str = "state"  # folder of what the site writes

    def __post_init__(self) -> None:
        check_site_name(self.name)
        require(_is_server(self.server), "site", "server", 'an address such as "tls://host:4222"', repr(self.server))
        require(1 <= self.clients <= MOST_CLIENTS, "site", "clients", f"1 to {MOST_CLIENTS:,}", self.clients)


def _is_server(address: str) -> bool:
    if is_flower(address):
        return True
    try:
        parts = urlsplit(address)
        return parts.scheme == "tls" and bool(parts.hostname) and parts.port is not None and parts.path == ""
    except ValueError:  # a port that is no number
        return False


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Tables:
    """The tables of SITE.toml."""

    site: SiteIdentity
    data: DataSettings  # its types, schema and options name the columns of the file
    policy: Policy
    columns: dict[str, str] = dataclasses.field(default_factory=dict[str, str])  # question's field: column of the file

    def __post_init__(self) -> None:
        twice = sorted({column for column in self.columns.values() if [*self.columns.values()].count(column) > 1})
        if twice:
            raise InvalidInput(f"[columns] names the column {twice[0]!r} for several fields: give each its own")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SiteSettings(_Tables):
    """Everything in SITE.toml, and the files of its folder. Reading it opens no other file."""

    folder: Path

    @classmethod
    def read(cls, path: str | Path) -> "SiteSettings":
        """The settings in a file."""
        table = read_toml(path, "the settings of a site such as SITE.toml")
        try:
            return cls(folder=Path(path).resolve().parent, **vars(from_table(_Tables, table)))
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from None

    @property
    def name(self) -> str:
        """The site's name, which is also that of its clients in its ledger."""
        return self.site.name

    @property
    def certificate(self) -> Path:
        """The site's certificate."""
        return self.folder / self.site.certificate

    @property
    def key(self) -> Path:
        """The private key of that certificate."""
        return self.folder / self.site.key

    @property
    def authority(self) -> Path:
        """The certificate of the authority that issued all others of this fleet."""
        return self.folder / self.site.authority

    @property
    def roster(self) -> "tuple[Party, ...]":
        """All sites of the fleet, by name: read from the site's own folder, never taken from the coordinator."""
        from blindsight.fleet.site.credentials import read_roster

        return read_roster(self.folder / self.site.roster)

    def check_papers(self) -> datetime.datetime:
        """The end of the certificate's validity; refuses papers that do not fit together, or not the time."""
        from blindsight.fleet.site.credentials import check_credentials

        paths = {"certificate": self.certificate, "key": self.key, "authority": self.authority}
        return check_credentials(self.name, self.roster, **paths, now=datetime.datetime.now(datetime.UTC))

    @property
    def state(self) -> Path:
        """The folder of what the site writes."""
        return self.folder / self.site.state

    @property
    def ledger(self) -> Path:
        """The ledger of the site's clients."""
        return self.state / "ledger.db"

    @property
    def book(self) -> Path:
        """What was asked, decided and paid."""
        return self.state / "book.db"

    @property
    def rounds(self) -> Path:
        """The rounds of secure sums that it took part in."""
        return self.state / "rounds.db"

    @property
    def diary(self) -> Path:
        """Everything it did, in plain words."""
        return self.state / "diary.jsonl"

    @property
    def population(self) -> str:
        """The data: a path if there is a file or folder of that name in the site's folder, else a name."""
        own = self.folder / self.data.population
        return str(own) if own.exists() else self.data.population

    @property
    def schema(self) -> Path | None:
        """The JSON file with the types of its columns."""
        return None if self.data.schema is None else self.folder / self.data.schema


def site_schema() -> dict[str, Any]:
    """The JSON Schema of SITE.toml, for editors."""
    return json_schema(_Tables, "SITE.toml")
