"""SITE.toml and the certificates beside it: in order, or refused with their place."""

import dataclasses
import datetime
import json
import re
import shutil
from pathlib import Path

import pytest
from site_folder import site_folder

from blindsight.errors import InvalidInput
from blindsight.fleet.certificates import Authority, write_secret
from blindsight.fleet.codes import Code
from blindsight.fleet.site.credentials import check_credentials
from blindsight.fleet.site.policy import AskerLimit, Policy
from blindsight.fleet.site.settings import SiteIdentity, SiteSettings


def test_a_file_of_settings_is_read_whole(tmp_path: Path):
    settings = site_folder(
        tmp_path, 'approve = "automatically"\nhours = "08:00-18:00"\naskers = {anna = {epsilon_total = 1}}'
    )
    assert (settings.name, settings.site.clients, settings.columns) == ("north", 40, {"years": "age"})
    assert settings.policy.tasks == ("slices", "sanity")
    assert settings.policy.askers == {"anna": AskerLimit(epsilon_total=1.0)}
    assert [party.name for party in settings.roster] == ["north", "south", "west"]
    assert settings.population == str(tmp_path / "patients.csv")
    assert {path.parent for path in (settings.book, settings.diary, settings.ledger)} == {tmp_path / "state"}


def test_the_example_on_the_page_is_valid_and_every_key_and_code_is_on_it(tmp_path: Path):
    page = (Path(__file__).parents[2] / "docs" / "site.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "SITE.toml").write_text(example, encoding="utf-8")
    assert SiteSettings.read(tmp_path / "SITE.toml").policy.limit_of("bert") == 1.0
    fields = [*dataclasses.fields(Policy), *dataclasses.fields(SiteIdentity)]
    for name in (*(field.name for field in fields), *Code):
        assert f"`{name}`" in page or f"{name} = " in page, name


def test_all_tasks_are_spelled_as_one_word(tmp_path: Path):
    assert site_folder(tmp_path, **{'["slices", "sanity"]': '"all"'}).policy.allows("anything")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("clients = 40", "client = 40", "did you mean 'clients'"),
        ("clients = 40", "clients = 4.5", "whole number"),
        ("clients = 40", "clients = 0", "clients"),
        ('name = "north"', 'name = "../north"', "site's name"),
        ('name = "north"', 'name = "coordinator"', "site's name"),
        ("tls://", "nats://", "server"),
        (":4222", "", "server"),
        (":4222", ":port", "server"),
        ("[policy]", "[polices]", "did you mean 'policy'"),
        ("epsilon_total = 4.0", "", "needs 'epsilon_total'"),
        ("epsilon_total = 4.0", 'epsilon_total = 4.0\napprove = "never"', "by hand, automatically"),
        ("epsilon_total = 4.0", "epsilon_total = 4.0\naskers = {anna = {epsilon = 1}}", "epsilon_total"),
        ('years = "age"', 'years = "age"\nolder = "age"', "several fields"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_place(tmp_path: Path, old: str, new: str, words: str):
    with pytest.raises(InvalidInput, match=words) as refused:
        site_folder(tmp_path, **{old: new})
    assert str(tmp_path / "SITE.toml") in str(refused.value)


def test_reading_settings_needs_no_other_file(tmp_path: Path):
    site_folder(tmp_path)
    for name in ("patients.csv", "roster.json", "key.pem", "certificate.pem", "authority.pem"):
        (tmp_path / name).unlink()
    assert SiteSettings.read(tmp_path / "SITE.toml").name == "north"


def check(settings: SiteSettings, days: int = 0) -> datetime.datetime:
    now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    paths = {"certificate": settings.certificate, "key": settings.key, "authority": settings.authority}
    return check_credentials(settings.name, settings.roster, **paths, now=now)


def test_papers_that_fit_together_are_valid_for_a_year(tmp_path: Path):
    settings = site_folder(tmp_path)
    assert check(settings) > datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=365)
    for days in (-2, 500):
        with pytest.raises(InvalidInput, match="valid from"):
            check(settings, days)


@pytest.mark.parametrize(
    ("stolen", "words"),
    [
        (["certificate.pem"], "not the key"),
        (["key.pem"], "not the key"),
        (["certificate.pem", "key.pem"], "not issued by"),
        (["authority.pem"], "not issued by"),
        (["certificate.pem", "key.pem", "authority.pem"], "the roster does not have"),
    ],
)
def test_papers_of_another_fleet_are_refused(tmp_path: Path, stolen: list[str], words: str):
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
        site_folder(tmp_path / name)
    for name in stolen:
        shutil.copy(tmp_path / "other" / name, tmp_path / "own" / name)
    with pytest.raises(InvalidInput, match=words):
        check(SiteSettings.read(tmp_path / "own" / "SITE.toml"))


def test_a_roster_that_gives_a_name_to_anothers_certificate_is_refused(tmp_path: Path):
    settings = site_folder(tmp_path)
    roster = json.loads((tmp_path / "roster.json").read_text(encoding="utf-8"))["sites"]
    wrong: list[object] = [
        {"sites": roster | {"south": roster["west"]}},
        {"sites": roster | {"south": 5}},
        {"sites": {}},
        ["north"],
        {"sites": roster | {"No Name": roster["west"]}},
    ]
    for value in wrong:
        (tmp_path / "roster.json").write_text(json.dumps(value), encoding="utf-8")
        with pytest.raises(InvalidInput):
            _ = settings.roster
    (tmp_path / "roster.json").write_text("{", encoding="utf-8")
    with pytest.raises(InvalidInput, match="not a roster"):
        _ = settings.roster


def test_a_certificate_of_a_server_is_no_sites(tmp_path: Path):
    settings = site_folder(tmp_path)
    server = Authority.new("test").server(["north"])
    settings.certificate.unlink()
    write_secret(settings.certificate, server.certificate)
    with pytest.raises(InvalidInput, match="client's"):
        check(settings)
