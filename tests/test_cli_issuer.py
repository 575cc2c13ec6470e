"""`blindsight issuer`: keys come and go, and requests on standard input are signed unseen."""

import subprocess
import sys

import pytest
from command import run

from blindsight.service.admission import from_text, to_text
from blindsight.service.wallet import Wallet


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("issuer") / "keys"
    done = run("issuer", "create", str(where), "--name", "issuer.example.org")
    assert done.returncode == 0, done.stderr
    return where


def test_requests_are_signed_one_per_line(folder, tmp_path):
    wallet, directory = Wallet(tmp_path / "wallet.db"), folder / "issuer.json"
    requests = wallet.ask(directory, "phishing", 2)
    lines = [to_text(requests[0]), "no request", to_text(requests[1])]
    words = [sys.executable, "-m", "blindsight", "issuer", "sign", str(folder)]
    done = subprocess.run(words, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True, timeout=120)
    first, nothing, second = done.stdout.splitlines()
    assert nothing == ""
    assert "token request" in done.stderr or "base64" in done.stderr
    assert wallet.accept(directory, requests, [from_text(first), from_text(second)]) == 2


def test_keys_are_listed_rotated_and_revoked(folder):
    assert run("issuer", "rotate", str(folder), "--days", "1").returncode == 0
    listed = run("issuer", "keys", str(folder)).stdout.splitlines()
    assert len(listed) == 2
    gone = listed[0].split()[0]
    assert gone in run("issuer", "revoke", str(folder), gone).stdout
    assert gone not in run("issuer", "keys", str(folder), "--json").stdout
    wrong = run("issuer", "revoke", str(folder), "no such key")
    assert (wrong.returncode, "0 keys begin with" in wrong.stderr) == (2, True)
