"""Settings and tokens: every mistake is one sentence."""

from pathlib import Path

import pytest

from blindsight.errors import InvalidInput
from blindsight.service import Settings
from blindsight.service.auth import Access, digest, own_tokens, read_tokens

ROOT = Path(__file__).parents[2]


def test_a_file_gives_settings_and_the_rest_are_defaults(tmp_path):
    file = tmp_path / "SERVE.toml"
    file.write_text('port = 9000\nrate_per_s = 5\ntasks = "a.json"\norigins = ["https://x.example"]\ndata = "kept"\n')
    found = Settings.load(file)
    assert (found.port, found.rate_per_s, found.host) == (9000, 5.0, "127.0.0.1")
    assert found.tasks == (tmp_path / "a.json",)
    assert found.data == tmp_path / "kept"
    assert found.origins == ("https://x.example",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("prot = 1", "did you mean 'port'"),
        ("port = '1'", "port must be a whole number"),
        ("port = 70000", "from 0 to 65535"),
        ("share_port = 1", "true or false"),
        ("share_port = true", "a shared store"),
        ("store = 'sqlite://x'", "redis://"),
        ("ticket_s = 0", "more than 0"),
        ("ticket_s = inf", "at most 2592000"),
        ("store = 'redis+sentinel://host:1'", "redis\\+sentinel://host"),
        ("store = 'redis+cluster://host:1/2'", "only database 0"),
        ("rate_per_s = -1", "0 \\(no limit\\)"),
        ("rate_per_s = nan", "0 \\(no limit\\)"),
        ("host = 3", "text in quotes"),
        ("certificate = 'a.pem'", "both files"),
        ("port = ", "not TOML"),
    ],
)
def test_mistakes_are_named_with_the_file(tmp_path, text, says):
    file = tmp_path / "SERVE.toml"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=says) as found:
        Settings.load(file)
    assert "SERVE.toml" in str(found.value)


def test_a_file_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(InvalidInput, match="cannot read"):
        Settings.load(tmp_path / "nothing.toml")


def test_every_setting_is_documented():
    import dataclasses

    page = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
    for field in dataclasses.fields(Settings):
        assert f"`{field.name}`" in page, field.name


def test_tokens_come_from_a_file_and_the_environment(tmp_path):
    file = tmp_path / "tokens.toml"
    file.write_text('admin = "an admin token, long"\n[models]\na = ["a token of model a"]\nb = "a token of model a"\n')
    environment = {"BLINDSIGHT_ADMIN_TOKEN": "another-admin-token", "BLINDSIGHT_MODEL_TOKENS": "a=one-more-token-of-a"}
    found = read_tokens(file, environment)
    assert found == {
        digest("an admin token, long"): {"*"},
        digest("a token of model a"): {"a", "b"},
        digest("another-admin-token"): {"*"},
        digest("one-more-token-of-a"): {"a"},
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("admin = ['short']", "at least 16"),
        ("admin = [3]", "at least 16"),
        ("[models]\na = ['pässwörter sind länger']", "printable ASCII characters"),
        ("other = 1", "nothing else"),
        ("models = 3", "nothing else"),
        ("admin = [", "not TOML"),
    ],
)
def test_tokens_that_are_none_are_refused(tmp_path, text, says):
    file = tmp_path / "tokens.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=says):
        read_tokens(file, {})


def test_environment_of_tokens_has_pairs():
    with pytest.raises(InvalidInput, match="model=token"):
        read_tokens(None, {"BLINDSIGHT_MODEL_TOKENS": "just-a-token-alone"})


def test_a_service_without_tokens_makes_one_that_only_its_owner_reads(tmp_path):
    path = own_tokens(tmp_path / "kept")
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(read_tokens(path, {}).values()) == [{"*"}]
    assert own_tokens(tmp_path / "kept").read_text() == path.read_text()


def test_a_bucket_fills_again():
    now = [0.0]
    access = Access(rate_per_s=2.0, now=lambda: now[0])
    assert [access.takes() for _ in range(5)] == [True] * 4 + [False]
    now[0] = 0.5
    assert [access.takes() for _ in range(2)] == [True, False]
    now[0] = 100.0
    assert sum(access.takes() for _ in range(10)) == 4
    assert all(Access().takes() for _ in range(100))
