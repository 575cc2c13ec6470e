"""The folder of a fleet: what it holds, who may read it, and that it survives whatever interrupts a change."""

import contextlib
import json
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.fleet import folder as folder_module
from blindsight.fleet import membership
from blindsight.fleet.certificates import party_of
from blindsight.fleet.codes import Code
from blindsight.fleet.folder import FleetFolder, read_roster
from blindsight.fleet.secure_sum import Refused
from blindsight.fleet.site.settings import SiteSettings

SITES = ("a", "b", "c")


@pytest.fixture
def fleet(tmp_path: Path) -> FleetFolder:
    return FleetFolder.init(tmp_path / "hospitals", sites=SITES)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def let_in(fleet: FleetFolder) -> dict[str, str]:
    """The users in the server's configuration, and the fingerprint of the key of each."""
    text = (fleet.path / "nats.conf").read_text(encoding="utf-8")
    return {name: key for key, name in re.findall(r'user: "OU=([0-9a-f]{64}),CN=([a-z]+)"', text)}


def test_a_new_fleet_has_a_certificate_for_everybody_and_a_folder_for_each_site(fleet: FleetFolder):
    keys = {
        f"{name}/{file}" for name in ("authority", "server", "coordinator") for file in ("certificate.pem", "key.pem")
    }
    of_sites = ("SITE.toml", "certificate.pem", "key.pem", "authority.pem", "roster.json")
    own = {f"sites/{site}/{file}" for site in SITES for file in of_sites}
    assert files(fleet.path) == {"fleet.toml", "roster.json", "nats.conf", *keys, *own}
    assert [party.name for party in fleet.parties] == list(SITES)
    assert fleet.settings.server == "127.0.0.1:4222"
    assert FleetFolder.read(fleet.path) == fleet
    for site in SITES:
        place = fleet.path / "sites" / site
        assert read_roster(place / "roster.json") == fleet.roster
        assert (place / "certificate.pem").read_bytes() == fleet.roster[site]
        assert (place / "authority.pem").read_bytes() == (fleet.path / "authority/certificate.pem").read_bytes()
        assert f'name = "{site}"' in (place / "SITE.toml").read_text(encoding="utf-8")
    assert {*let_in(fleet)} == {"coordinator", *SITES}
    assert len({*let_in(fleet).values()}) == 4


def test_only_the_owner_reads_keys(fleet: FleetFolder):
    keys = sorted(fleet.path.rglob("key.pem"))
    assert len(keys) == 6
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}
    assert stat.S_IMODE(fleet.path.stat().st_mode) == 0o700


def test_the_coordinator_needs_neither_the_authoritys_key_nor_the_sites_files(fleet: FleetFolder, tmp_path: Path):
    for secret in (
        "authority/key.pem",
        *(f"sites/{site}/{file}" for site in SITES for file in ("key.pem", "SITE.toml")),
    ):
        (fleet.path / secret).unlink()
    again = FleetFolder.read(fleet.path)
    party = party_of((fleet.path / "coordinator/certificate.pem").read_bytes())
    assert party.has_signed(b"x", again.signer()(b"x"))
    for change in (membership.add, membership.rotate):
        with pytest.raises(InvalidInput, match="only the holder of the authority's key"):
            change(fleet.path, "a" if change is membership.rotate else "d")
    assert FleetFolder.read(fleet.path) == fleet
    membership.revoke(fleet.path, "a")


def test_nothing_is_overwritten_and_a_refused_fleet_leaves_nothing(fleet: FleetFolder, tmp_path: Path):
    before = {name: (fleet.path / name).read_bytes() for name in files(fleet.path)}
    with pytest.raises(InvalidInput, match="never overwritten"):
        FleetFolder.init(fleet.path, sites=SITES)
    assert {name: (fleet.path / name).read_bytes() for name in files(fleet.path)} == before
    with pytest.raises(InvalidInput):
        FleetFolder.init(tmp_path / "new", sites=["a", "B", "c"])
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".db"] == ["hospitals"]


def test_a_disk_that_is_full_leaves_no_half_fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder_module, "write_site_files", full)
    with pytest.raises(BlindsightError, match="No space left"):
        FleetFolder.init(tmp_path / "hospitals", sites=SITES)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sites", [["a"], ["a", "b"]])
def test_noise_at_fewer_than_three_sites_is_refused_by_name(sites: list[str], tmp_path: Path):
    with pytest.raises(Refused, match=r'noise at the sites needs 3 sites, and small has \d, .*noise = "coordinator"'):
        FleetFolder.init(tmp_path / "small", sites=sites)
    fleet = FleetFolder.init(tmp_path / "small", sites=sites, noise="coordinator")
    assert fleet.settings.noise == "coordinator"
    text = (fleet.path / "fleet.toml").read_text(encoding="utf-8")
    (fleet.path / "fleet.toml").write_text(text.replace('noise = "coordinator"', 'noise = "sites"'), encoding="utf-8")
    with pytest.raises(Refused, match="needs 3 sites"):
        FleetFolder.read(fleet.path)
    assert FleetFolder.read(fleet.path, to_ask=False).settings.sites == tuple(sites)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('name = "hospitals"', 'name = "Hospitals!"'), "site's name is"),
        (('server = "127.0.0.1:4222"', 'server = "127.0.0.1"'), "must be an address"),
        (('server = "127.0.0.1:4222"', 'server = "a b:4222"'), "must be an address"),
        (('server = "127.0.0.1:4222"', 'server = "a:99999"'), "must be an address"),
        (('sites = ["a", "b", "c"]', 'sites = ["a", "b", "b"]'), "different names"),
        (('sites = ["a", "b", "c"]', "sites = []"), "different names"),
        (('sites = ["a", "b", "c"]', 'sites = ["a", "b", "d"]'), "fleet add and revoke"),
        (('sites = ["a", "b", "c"]', 'sites = ["a", "b", "server"]'), "cannot be called 'server'"),
        (("colluding = 1", "colluding = 3"), "0 to 2 may collude"),
        (("colluding = 1", "colluding = -1"), "0 to 2 may collude"),
        (('noise = "sites"', 'noise = "nobody"'), "must be one of sites, coordinator"),
        (("colluding = 1", "coluding = 1"), "did you mean 'colluding'"),
    ],
)
def test_settings_that_make_no_sense_are_refused_with_their_place(
    fleet: FleetFolder, change: tuple[str, str], words: str
):
    path = fleet.path / "fleet.toml"
    text = path.read_text(encoding="utf-8")
    assert change[0] in text
    path.write_text(text.replace(*change), encoding="utf-8")
    with pytest.raises(InvalidInput, match=words):
        FleetFolder.read(fleet.path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda roster: "",
        lambda roster: "[]",
        lambda roster: '{"sites": []}',
        lambda roster: '{"sites": {"a": 1}}',
        lambda roster: json.dumps({"sites": {**roster, "a": roster["b"]}}),
        lambda roster: json.dumps({"sites": {**roster, "a": roster["a"][:200]}}),
    ],
)
def test_a_damaged_roster_is_refused(fleet: FleetFolder, damage: Callable[[dict[str, str]], str]):
    path = fleet.path / "roster.json"
    path.write_text(damage(json.loads(path.read_text(encoding="utf-8"))["sites"]), encoding="utf-8")
    with pytest.raises(InvalidInput):
        FleetFolder.read(fleet.path)


@pytest.mark.parametrize(
    ("host", "listening", "server"),
    [
        ("127.0.0.1", "127.0.0.1:5000", "127.0.0.1:5000"),
        ("localhost", "127.0.0.1:5000", "localhost:5000"),
        ("::1", "[::1]:5000", "[::1]:5000"),
        ("fleet.example.org", "0.0.0.0:5000", "fleet.example.org:5000"),
        ("2001:db8::1", "[::]:5000", "[2001:db8::1]:5000"),
    ],
)
def test_the_server_listens_where_its_sites_connect(tmp_path: Path, host: str, listening: str, server: str):
    fleet = FleetFolder.init(tmp_path / "f", sites=SITES, hosts=[host, "192.0.2.7"], port=5000)
    assert (fleet.settings.listening, fleet.settings.server) == (listening, server)
    assert f'listen: "{listening}"' in (fleet.path / "nats.conf").read_text(encoding="utf-8")
    certificate = x509.load_pem_x509_certificate((fleet.path / "server/certificate.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == [host, "192.0.2.7"]


# --- sites come and go


def test_a_new_site_is_sent_its_files_and_the_others_the_roster(fleet: FleetFolder):
    parcels = membership.add(fleet.path, "d")
    assert [(str(one.path.relative_to(fleet.path)), one.receiver, one.is_secret) for one in parcels] == [
        ("sites/d", "d", True),
        *(("roster.json", site, False) for site in SITES),
    ]
    changed = FleetFolder.read(fleet.path)
    assert list(changed.roster) == [*SITES, "d"]
    assert {site: changed.roster[site] for site in SITES} == fleet.roster
    assert {*let_in(changed)} == {"coordinator", *SITES, "d"}
    for site in changed.roster:
        assert read_roster(fleet.path / "sites" / site / "roster.json") == changed.roster
    with pytest.raises(InvalidInput, match="already"):
        membership.add(fleet.path, "d")
    with pytest.raises(InvalidInput, match="cannot be called 'server'"):
        membership.add(fleet.path, "server")


def test_a_rotated_key_replaces_the_old_one_everywhere(fleet: FleetFolder):
    before = let_in(fleet)
    settings = fleet.path / "sites/a/SITE.toml"
    settings.write_text("the site's own words", encoding="utf-8")
    parcels = membership.rotate(fleet.path, "a")
    assert [(str(one.path.relative_to(fleet.path)), one.receiver, one.is_secret) for one in parcels] == [
        ("sites/a/certificate.pem", "a", False),
        ("sites/a/key.pem", "a", True),
        *(("roster.json", site, False) for site in SITES),
    ]
    changed = FleetFolder.read(fleet.path)
    assert changed.roster["a"] != fleet.roster["a"]
    assert changed.roster["a"] == (fleet.path / "sites/a/certificate.pem").read_bytes()
    assert changed.roster["b"] == fleet.roster["b"]
    after = let_in(changed)
    assert {name for name in before if before[name] != after[name]} == {"a"}
    assert settings.read_text(encoding="utf-8") == "the site's own words"


def test_the_coordinators_and_the_servers_keys_rotate_too(fleet: FleetFolder):
    before = {name: (fleet.path / name / "certificate.pem").read_bytes() for name in ("server", "coordinator")}
    conf = (fleet.path / "nats.conf").read_text(encoding="utf-8")
    for name in before:
        assert membership.rotate(fleet.path, name) == []
        assert (fleet.path / name / "certificate.pem").read_bytes() != before[name]
    assert (fleet.path / "nats.conf").read_text(encoding="utf-8") != conf
    assert {*let_in(fleet)} == {"coordinator", *SITES}
    assert FleetFolder.read(fleet.path) == fleet


def test_a_revoked_site_is_nowhere_even_if_too_few_are_left(fleet: FleetFolder):
    membership.revoke(fleet.path, "b")
    changed = FleetFolder.read(fleet.path, to_ask=False)
    assert list(changed.roster) == ["a", "c"]
    assert {*let_in(changed)} == {"coordinator", "a", "c"}
    with pytest.raises(Refused, match="needs 3 sites"):
        FleetFolder.read(fleet.path)
    with pytest.raises(InvalidInput, match="no site 'b'"):
        membership.revoke(fleet.path, "b")
    membership.revoke(fleet.path, "a")
    with pytest.raises(InvalidInput, match="the only site"):
        membership.revoke(fleet.path, "c")


class Crash(BaseException):
    """The process ends here."""


CHANGES: dict[str, Callable[[Path], Any]] = {
    "add": lambda path: membership.add(path, "d"),
    "rotate": lambda path: membership.rotate(path, "b"),
    "revoke": lambda path: membership.revoke(path, "b"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_a_crash_interrupts_can_be_made_again(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Wherever it stops: the fleet can be read, and who is out of the roster is soon out of the server, too."""
    real = folder_module.write_whole
    for last in range(40):
        fleet = FleetFolder.init(tmp_path / f"fleet{last}", sites=SITES)
        writes = iter(range(last))

        def write(path: Path, text: str, writes: Any = writes) -> Path:
            if next(writes, None) is None:
                raise Crash
            return real(path, text)

        with monkeypatch.context() as patch:
            patch.setattr(folder_module, "write_whole", write)
            try:
                CHANGES[change](fleet.path)
            except Crash:
                pass
            else:
                break  # it was not interrupted any more
        for _ in range(2):  # the second time it may be refused as done
            with contextlib.suppress(InvalidInput):
                CHANGES[change](fleet.path)
        after = FleetFolder.read(fleet.path, to_ask=False)
        expected = {"add": [*SITES, "d"], "rotate": [*SITES], "revoke": ["a", "c"]}[change]
        assert list(after.roster) == expected
        assert f"sites = {json.dumps(expected)}" in (fleet.path / "fleet.toml").read_text(encoding="utf-8")
        assert {*let_in(after)} == {"coordinator", *expected}
        assert after.roster[expected[0]] == (fleet.path / "sites" / expected[0] / "certificate.pem").read_bytes()
    else:
        pytest.fail("it writes more than expected")
    assert last >= 3


# --- what is sent to a site


def test_a_sites_settings_are_refused_until_they_are_filled_in(fleet: FleetFolder):
    path = fleet.path / "sites/a/SITE.toml"
    with pytest.raises(InvalidInput, match=r"clients|population"):
        SiteSettings.read(path)
    text = re.sub(r"(?m)^# (?=clients|population|options|types|age)", "", path.read_text(encoding="utf-8"))
    path.write_text(text, encoding="utf-8")
    settings = SiteSettings.read(path)
    assert (settings.name, settings.site.server) == ("a", f"tls://{fleet.settings.server}")
    assert settings.policy.approve == "by hand"
    assert settings.policy.tasks == ("all",)
    assert [party.name for party in settings.roster] == list(SITES)
    assert settings.columns == {"age": "AGE_YEARS"}


def test_the_codes_on_the_page_are_those_that_sites_send():
    page = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.MULTILINE))
    assert rows == {str(code): code.meaning for code in Code}
