"""The folder of one site of a fleet, and questions that it might be asked."""

import dataclasses
import datetime
import hashlib
import json
from pathlib import Path
from typing import Any

from blindsight.fleet.certificates import Authority, write_secret
from blindsight.fleet.site.policy import Asked, Leaf
from blindsight.fleet.site.settings import SiteSettings

NOW = datetime.datetime(2026, 3, 2, 12, 0, tzinfo=datetime.UTC)

SITE_TOML = """
[site]
name = "north"
server = "tls://127.0.0.1:4222"
clients = 40

[data]
population = "patients.csv"
options = {{ client = "id" }}
types = {{ age = "whole:0:120" }}

[columns]
years = "age"

[policy]
tasks = ["slices", "sanity"]
epsilon_per_question = 2.0
epsilon_total = 4.0
delta = 1e-6
{policy}
"""


def site_folder(folder: Path, policy: str = "", **changes: str) -> SiteSettings:
    """Settings, certificates, roster and data of the site `north`; `changes` replaces words of SITE.toml."""
    text = SITE_TOML.format(policy=policy)
    for old, new in changes.items():
        text = text.replace(old, new)
    (folder / "SITE.toml").write_text(text, encoding="utf-8")
    authority = Authority.new("test")
    issued = {name: authority.party(name) for name in ("north", "south", "west")}
    write_secret(folder / "certificate.pem", issued["north"].certificate)
    write_secret(folder / "key.pem", issued["north"].key)
    (folder / "authority.pem").write_bytes(authority.pem)
    roster = {"sites": {name: one.certificate.decode() for name, one in issued.items()}}
    (folder / "roster.json").write_text(json.dumps(roster), encoding="utf-8")
    rows = "".join(f"p{number % 40},{20 + number % 60}\n" for number in range(120))
    (folder / "patients.csv").write_text(f"id,age\n{rows}", encoding="utf-8")
    return SiteSettings.read(folder / "SITE.toml")


def asked(name: str = "first", **changes: Any) -> Asked:
    """A question that the policy above allows."""
    usual = Asked(
        job=hashlib.sha256(name.encode()).hexdigest(),
        kind="question",
        task="slices",
        asker="anna",
        epsilon=1.0,
        delta=1e-6,
        sentence="On which clients does the model fail, and why?",
        leaves=(Leaf("cues", 120, 3.0), Leaf("votes", 17, 1.0)),
        colluding=1,
        noise="Every site adds a share; the promise holds if at most 1 of 3 sites colludes.",
        version="0.9.0",
        sent_at=NOW,
        received_at=NOW,
    )
    return dataclasses.replace(usual, **changes)
