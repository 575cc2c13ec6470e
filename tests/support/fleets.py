"""A fleet in one process: sites in threads of their own, real keys and real secure sums, lines in memory."""

import contextlib
import json
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.data.population import Population
from blindsight.data.sources import source
from blindsight.fleet.carriers.in_process import Exchange
from blindsight.fleet.certificates import Authority, party_of
from blindsight.fleet.clients import Fleet
from blindsight.fleet.secure_sum.terms import FEWEST_SITES, least_threshold
from blindsight.fleet.site.settings import SiteSettings
from blindsight.fleet.sites import Patience, Sites
from blindsight.jobs.site import agent_of

__all__ = ["SITE_TOML", "embedded", "fleet_in_process", "pooled", "write_sites"]

SITE_TOML = """
[site]
name = "{name}"
server = "tls://127.0.0.1:4222"
clients = {clients}

[data]
{data}

[policy]
tasks = ["all"]
epsilon_per_question = 20.0
epsilon_total = 1000.0
delta = 1e-3
approve = "automatically"
reproducible = true
noise = "{noise}"
"""


def write_sites(
    folder: Path, sites: Mapping[str, tuple[int, str]], *, template: str = SITE_TOML, noise: str = "sites"
) -> dict[str, bytes]:
    """The folder of each site, named with its number of clients and its [data]; returns the roster."""
    authority = Authority.new("test")
    issued = {name: authority.party(name) for name in sites}
    roster = {name: one.certificate for name, one in issued.items()}
    for name, (clients, data) in sites.items():
        place = folder / name
        place.mkdir(parents=True)
        (place / "certificate.pem").write_bytes(issued[name].certificate)
        (place / "key.pem").write_bytes(issued[name].key)
        (place / "authority.pem").write_bytes(authority.pem)
        listed = {"sites": {other: certificate.decode() for other, certificate in roster.items()}}
        (place / "roster.json").write_text(json.dumps(listed), encoding="utf-8")
        text = template.format(name=name, clients=clients, data=data, noise=noise)
        (place / "SITE.toml").write_text(text, encoding="utf-8")
    return roster


@contextlib.contextmanager
def fleet_in_process(
    folder: Path,
    sites: Mapping[str, tuple[int, str]],
    *,
    noise: str = "sites",
    colluding: int = 1,
    absent: Sequence[str] = (),
    template: str = SITE_TOML,
    prepare: Callable[[Path], None] = lambda folder: None,
) -> Generator[Fleet]:
    """The fleet of these sites, at work until the block ends; `absent` sites are in the roster and never answer.

    `prepare` is given the folder before the sites start.
    """
    roster = write_sites(folder, sites, template=template, noise=noise)
    prepare(folder)
    parties = [party_of(certificate) for certificate in roster.values()]
    exchange, agents, threads = Exchange(), [], []
    for name in roster:
        if name not in absent:
            agents.append(agent_of(SiteSettings.read(folder / name / "SITE.toml"), exchange.connect(name)))
            threads.append(threading.Thread(target=agents[-1].serve, name=name))
    for thread in threads:
        thread.start()
    lines = exchange.connect("coordinator")
    count = len(sites)
    try:
        yield Fleet(
            name="hospitals",
            connect=lambda: Sites(lines, parties, Patience(again_s=60.0, silence_s=120.0 if not absent else 3.0)),
            sites=tuple(sorted(sites)),
            noise="sites" if noise == "sites" else "coordinator",
            fewest=least_threshold(count) if count >= FEWEST_SITES else count,
            colluding=colluding if noise == "sites" else 0,
            declared={name: clients for name, (clients, _) in sites.items()},
            asker="modeller",
            wait_s=600.0,
        )
    finally:
        for agent in agents:
            agent.stop()
        for thread in threads:
            thread.join()


def embedded(name: str, sizes: dict[str, int], **options: Any) -> tuple[dict[str, tuple[int, str]], Population]:
    """The [data] of every site, and all their clients in the order of the sites' names."""
    data, parts = dict[str, tuple[int, str]](), list[Population]()
    for seed, (site, clients) in enumerate(sorted(sizes.items()), 1):
        own = {"clients": clients, "seed": seed, **options}
        written = ", ".join(
            f"{key} = {list(value) if isinstance(value, tuple) else value!r}" for key, value in own.items()
        )
        data[site] = clients, f'population = "{name}"\noptions = {{ {written} }}'.replace("'", '"')
        parts.append(source(name, own))
    return data, pooled(parts)


def pooled(parts: Sequence[Population]) -> Population:
    """The clients of all sites, one after the other."""
    return Population(
        {field: np.concatenate([one.columns[field] for one in parts]) for field in parts[0].fields},
        sizes=np.concatenate([one.sizes for one in parts]),
        name="hospitals",
        classes=parts[0].classes,
    )
