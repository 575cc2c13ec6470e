"""The files for one site, and for nobody else: its certificate and key, the roster, and a SITE.toml to fill in."""

from pathlib import Path

from blindsight.fleet.carriers.lines import FLOWER, is_flower
from blindsight.fleet.certificates import Issued, write_secret
from blindsight.runs import write_whole

__all__ = ["replace_key", "write_site_files"]

_SITE_TOML = """\
# One site of the fleet {fleet!r}. Fill in what is marked, then: blindsight site run SITE.toml

[site]
name = "{name}"
server = "{server}"
# clients = 1200                    # FILL IN: how many clients this site has; public, a rounded number will do

[data]
# population = "clients.parquet"    # FILL IN: a file or folder of this machine; it is never sent
# options = {{ client = "patient" }}  # FILL IN: the column that holds the client id
# types = {{ age = "whole:0:120" }}   # what columns hold, if questions do not say it

[columns]
# age = "AGE_YEARS"                 # a field in questions = the column of this site that holds it

[policy]
approve = "by hand"                 # "automatically": whatever this policy allows is answered at once
tasks = "all"                       # or a list: ["sanity", "slices"]
epsilon_per_question = 1.0          # per client, for one question
epsilon_total = 5.0                 # per client, for all questions together
delta = 1e-6
least_clients = 10                  # if this site declares fewer, it does not answer
{noise:<36}# "sites" add it; "coordinator": it may add it, and then sees sums without noise
"""


def write_site_files(
    folder: Path, name: str, fleet: str, server: str, issued: Issued, authority: bytes, noise: str
) -> None:
    """Write the files of one site, except the roster.

    Args:
        folder: Where to.
        name: The site.
        fleet: The fleet's name.
        server: Address of the server, as `carriers.lines` reads it.
        issued: The site's certificate and key.
        authority: Certificate of the authority.
        noise: Who adds the noise, to be confirmed by the site.
    """
    replace_key(folder, issued)
    write_whole(folder / "authority.pem", authority.decode())
    own = f"{FLOWER}flower.sock" if is_flower(server) else server  # a socket of the site's own machine
    write_whole(folder / "SITE.toml", _SITE_TOML.format(fleet=fleet, name=name, server=own, noise=f'noise = "{noise}"'))


def replace_key(folder: Path, issued: Issued) -> None:
    """Write a certificate and its key in place of those that are there."""
    for file, data in (("certificate.pem", issued.certificate), ("key.pem", issued.key)):
        (folder / file).unlink(missing_ok=True)
        write_secret(folder / file, data)
