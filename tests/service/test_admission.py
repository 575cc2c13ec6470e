"""Admission tokens: issued unseen, good for one draw of one model, in any process, across restarts."""

import json
import struct
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from blindsight.errors import InvalidInput
from blindsight.service import Client, blind_rsa
from blindsight.service.admission import TOKEN_BYTES, Admissions, TokenKey, challenge, from_text, read_keys, signed_part
from blindsight.service.client import ServiceError, UpdateLost
from blindsight.service.issuer import Issuer
from blindsight.service.protocol import Refusal
from blindsight.service.used import Used
from blindsight.service.wallet import Wallet

ROWS = [{"length": 30, "https": True, "phishing": False}]


@pytest.fixture(scope="module")
def issued(tmp_path_factory):
    """An issuer; keys take a while to make."""
    return Issuer.create(tmp_path_factory.mktemp("issuer") / "keys", "issuer.example.org")


@pytest.fixture
def wallet(tmp_path, issued):
    """A wallet with three tokens for the model of the tests."""
    return filled(Wallet(tmp_path / "wallet.db"), issued, 3)


def filled(wallet: Wallet, issuer: Issuer, count: int, model: str = "phishing") -> Wallet:
    directory = issuer.folder / "issuer.json"
    requests = wallet.ask(directory, model, count)
    wallet.accept(directory, requests, [issuer.answer(request) for request in requests])
    return wallet


def header(token: bytes) -> dict[str, str]:
    return {"Authorization": f"PrivateToken token={urlsafe_b64encode(token).decode()}"}


def draw(talk, token: bytes, model: str = "phishing"):
    return talk.client.get(f"/v1/models/{model}/draw", headers=header(token))


def test_the_vectors_of_rfc_9578():
    """A whole issuance with the RFC's key, nonce, salt and blinding: each message is the RFC's, to the last bit."""
    text = (Path(__file__).parents[1] / "golden" / "privacy_pass.json").read_text(encoding="utf-8")
    values = {name: bytes.fromhex(value) for name, value in json.loads(text).items() if name != "source"}
    p, q, e = (int.from_bytes(values[name]) for name in "pqe")
    d = rsa.rsa_recover_private_exponent(e, p, q)
    crt = rsa.rsa_crt_dmp1(d, p), rsa.rsa_crt_dmq1(d, q), rsa.rsa_crt_iqmp(p, q)
    private = rsa.RSAPrivateNumbers(p, q, d, *crt, rsa.RSAPublicNumbers(e, p * q)).private_key()
    key = TokenKey(private.public_key(), 0, 2**40)
    assert key.encoded == values["pkS"]
    assert challenge("issuer.example", "origin.example") == values["token_challenge"]
    part = signed_part(values["nonce"], "issuer.example", "origin.example", key.id)
    blinded, inverse = blind_rsa.blind(key.key, part, salt=values["salt"], r=int.from_bytes(values["blind"]))
    assert struct.pack(">HB", 2, key.id[-1]) + blinded == values["token_request"]
    assert blind_rsa.sign(private, blinded) == values["token_response"]
    assert part + blind_rsa.finalize(key.key, part, values["token_response"], inverse) == values["token"]


def test_a_token_opens_one_draw_and_its_ticket_one_update(serving, issued, wallet):
    talk = serving(admission=issued.folder / "issuer.json")
    token = wallet.take("phishing")
    drawn = draw(talk, token)
    assert drawn.status_code == 200
    again = draw(talk, token)
    assert (again.status_code, again.json()["cause"]) == (401, "admission_used")
    del talk.client.headers["authorization"]
    assert talk.update(drawn).status_code == 202  # the ticket alone
    assert talk.update(drawn).status_code == 410
    assert talk.client.get("/v1/models/phishing/task").status_code == 200


def test_model_tokens_open_no_draw_once_admission_is_required(serving, issued):
    refused = serving(admission=issued.folder / "issuer.json").draw()
    assert (refused.status_code, refused.json()["cause"]) == (401, "admission")
    asked = refused.headers["www-authenticate"]
    assert asked.startswith("PrivateToken challenge=")
    stated = asked.partition('challenge="')[2].partition('"')[0]
    assert from_text(stated) == challenge("issuer.example.org", "phishing")
    assert asked.partition('token-key="')[2].rstrip('"') == urlsafe_b64encode(issued.keys[-1].encoded).decode()


def test_clients_train_with_a_wallet(serving, issued, wallet):
    talk = serving(admission=issued.folder / "issuer.json")
    with Client(talk.address, "phishing", wallet, unprotected=True) as client:
        for _ in range(2):
            client.train(ROWS)
        drawn = draw(talk, wallet.take("phishing"))
        assert drawn.status_code == 200
        with pytest.raises(InvalidInput, match="no admission tokens"):
            client.train(ROWS)
    assert talk.statistics()["taken"] == 2


def test_a_token_that_counts_as_used_is_replaced(serving, issued, wallet, monkeypatch):
    talk = serving(admission=issued.folder / "issuer.json")
    spoilt = wallet.take("phishing")
    assert draw(talk, spoilt).status_code == 200
    take, given = wallet.take, [spoilt]
    monkeypatch.setattr(wallet, "take", lambda model: given.pop() if given else take(model))
    with Client(talk.address, "phishing", wallet, unprotected=True) as client:
        client.train(ROWS)
    assert talk.statistics()["taken"] == 1


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_used_tokens_stay_used_after_a_restart_and_in_other_processes(issued, wallet, request, tmp_path, store):
    server = request.getfixturevalue("redis_server") if store == "redis" else None
    given = {"admission": issued.folder / "issuer.json", "store": server.address if server else "memory"}
    token = wallet.take("phishing")
    if server:
        serving = request.getfixturevalue("serving")  # after the Redis, so that it ends before
        one, other = serving(data=tmp_path / "one", **given), serving(data=tmp_path / "other", **given)
        assert [draw(talk, token).status_code for talk in (one, other)] == [200, 401]
        return
    used, admission = (
        Used(tmp_path),
        Admissions(issued.folder / "issuer.json").check(header(token)["Authorization"].encode(), "phishing"),
    )
    assert used.use(admission)
    assert not Used(tmp_path).use(admission)  # without having been closed: its process was killed
    used.sweep(admission.ends + 1)
    assert not list(tmp_path.glob("*.used"))


def test_a_flooder_spends_its_own_tokens_only(serving, issued, tmp_path):
    """One sender asks with the same few tokens all the time; the others take part, and each is admitted."""
    talk = serving(admission=issued.folder / "issuer.json", rate_per_s=1.0)
    flooder = filled(Wallet(tmp_path / "flooder.db"), issued, 2)
    spent = [flooder.take("phishing") for _ in range(2)]
    honest = filled(Wallet(tmp_path / "honest.db"), issued, 6)
    with Client(talk.address, "phishing", honest, unprotected=True, retries=0) as client:
        for _ in range(6):
            for _ in range(5):
                draw(talk, spent[0])
                talk.draw()
            client.train(ROWS)
    assert talk.statistics()["taken"] == 6


def test_forged_foreign_and_malformed_tokens_are_refused(serving, issued, wallet, tmp_path):
    talk = serving(admission=issued.folder / "issuer.json")
    token = wallet.take("phishing")
    other = filled(Wallet(tmp_path / "other.db"), issued, 1, model="other").take("other")
    part = signed_part(bytes(32), "issuer.example.org", "phishing", issued.keys[-1].id)
    forged = [part + bytes(256), token[:-1] + bytes([token[-1] ^ 1]), struct.pack(">H", 1) + token[2:], token[:-1], b""]
    forged += [token[:2] + bytes(32) + token[34:], bytes(TOKEN_BYTES)]
    for wrong in (*forged, other):
        assert draw(talk, wrong).status_code == 401, wrong[:8]
    for words in ("PrivateToken", "PrivateToken token", "PrivateToken token=é", 'PrivateToken token="?"', "Bearer x"):
        refused = talk.client.get("/v1/models/phishing/draw", headers={"Authorization": words.encode()})
        assert refused.status_code == 401
    assert draw(talk, token).status_code == 200  # none of that used it


def test_a_token_is_not_used_by_a_draw_that_is_refused(serving, issued, wallet, monkeypatch):
    monkeypatch.setattr("blindsight.service.run._SHED_LESS", 0.0)  # the next tick would let draws in again
    talk = serving(admission=issued.folder / "issuer.json")
    token = wallet.take("phishing")
    talk.admin.post("/v1/admin/models/phishing/freeze")
    assert draw(talk, token).status_code == 423
    talk.admin.post("/v1/admin/models/phishing/thaw")
    talk.service.shedding = 1.0
    assert draw(talk, token).status_code == 503
    talk.service.shedding = 0.0
    assert draw(talk, token).status_code == 200


def test_keys_rotate_end_and_are_revoked(tmp_path):
    now = [1000.0]
    issuer = Issuer.create(tmp_path / "keys", "i.example", days=1, now=lambda: now[0])
    first = issuer.keys[0]
    checks = [Admissions(issuer.folder / "issuer.json", now=lambda: now[0])]
    now[0] += 80_000
    second = issuer.rotate(days=1)
    checks.append(Admissions(issuer.folder / "issuer.json", now=lambda: now[0]))
    assert [key.id for key in read_keys(issuer.folder / "issuer.json")[1]] == [first.id, second.id]
    assert len(list(issuer.folder.glob("*.pem"))) == 2
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in issuer.folder.glob("*.pem"))
    from blindsight.service import blind_rsa

    def token_of(key):
        part = signed_part(bytes(32), "i.example", "m", key.id)
        blinded, inverse = blind_rsa.blind(key.key, part)
        signed = issuer.answer(struct.pack(">HB", 2, key.id[-1]) + blinded)
        return header(part + blind_rsa.finalize(key.key, part, signed, inverse))["Authorization"].encode()

    old, new = token_of(first), token_of(second)
    assert checks[1].check(old, "m").key_id == first.id.hex()
    assert checks[1].check(new, "m").key_id == second.id.hex()
    with pytest.raises(Refusal):
        checks[0].check(new, "m")  # has not reloaded
    now[0] += 10_000  # the first key has ended
    with pytest.raises(Refusal):
        checks[1].check(old, "m")
    with pytest.raises(InvalidInput, match="no current key"):
        token_of(first)
    assert [key.id for key in issuer.keys] == [first.id, second.id]
    third = issuer.rotate(days=1)
    assert [key.id for key in issuer.keys] == [second.id, third.id]
    issuer.revoke(second.id.hex()[:8])
    with pytest.raises(Refusal):
        Admissions(issuer.folder / "issuer.json", now=lambda: now[0]).check(new, "m")
    assert [path.stem for path in issuer.folder.glob("*.pem")] == [third.id.hex()[:16]]
    for prefix in ("", "no such"):
        with pytest.raises(InvalidInput, match="keys begin with"):
            issuer.revoke(prefix)


def test_marks_of_used_tokens_take_the_same_memory_at_any_load(issued):
    from blindsight.service.used import FILTER_BYTES, Admission

    used = Used(None)
    assert all(used.use(Admission("k", (n, n + 1, 8 * FILTER_BYTES - 1 - n, 5 * n), 0)) for n in range(1, 3000))
    assert [len(marks) for marks, _ in used._filters.values()] == [FILTER_BYTES]


def test_what_is_no_issuer_or_request_is_said_so(tmp_path, issued):
    with pytest.raises(InvalidInput, match="cannot read"):
        read_keys(tmp_path / "nothing.json")
    for text in ("[]", "{", '{"issuer": "x", "token-keys": [{}]}', '{"issuer": "", "token-keys": []}'):
        (tmp_path / "wrong.json").write_text(text)
        with pytest.raises(InvalidInput):
            read_keys(tmp_path / "wrong.json")
    for request in (b"", bytes(259), struct.pack(">HB", 2, issued.keys[-1].id[-1]) + b"\xff" * 256):
        with pytest.raises(InvalidInput):
            issued.answer(request)
    with pytest.raises(InvalidInput, match="has an issuer already"):
        Issuer.create(issued.folder, "another.example")
    with pytest.raises(InvalidInput, match="host name"):
        Issuer.create(tmp_path, "a name with spaces")


def test_responses_make_tokens_once_and_only_of_this_wallet(tmp_path, issued):
    directory, wallet = issued.folder / "issuer.json", Wallet(tmp_path / "wallet.db")
    (request,) = wallet.ask(directory, "phishing", 1)
    response = issued.answer(request)
    with pytest.raises(InvalidInput, match="did not sign"):
        wallet.accept(directory, [request], [bytes(256)])
    with pytest.raises(InvalidInput, match="did not make"):
        Wallet(tmp_path / "other.db").accept(directory, [request], [response])
    assert wallet.accept(directory, [request], [response]) == 1
    with pytest.raises(InvalidInput, match="has its token already"):
        wallet.accept(directory, [request], [response])
    assert wallet.count("phishing") == 1


def test_a_reload_takes_new_keys_and_drops_revoked_ones(serving, tmp_path):
    import asyncio

    issuer = Issuer.create(tmp_path / "keys", "i.example")
    talk = serving(admission=issuer.folder / "issuer.json")
    wallet = filled(Wallet(tmp_path / "wallet.db"), issuer, 2)
    assert draw(talk, wallet.take("phishing")).status_code == 200
    issuer.revoke(issuer.keys[0].id.hex())
    issuer.rotate()
    loop = next(iter(next(iter(talk.service.listeners.values())).known)).loop
    asyncio.run_coroutine_threadsafe(talk.service.reload(talk.service.registry.settings), loop).result()
    assert draw(talk, wallet.take("phishing")).status_code == 401
    assert draw(talk, filled(wallet, issuer, 1).take("phishing")).status_code == 200


def test_a_client_whose_update_is_lost_learns_it(serving, issued, wallet):
    talk = serving(admission=issued.folder / "issuer.json")
    with Client(talk.address, "phishing", wallet, unprotected=True, retries=0) as client:

        def reset(task, weights):
            talk.admin.post("/v1/admin/models/phishing/reset")
            return weights

        with pytest.raises(UpdateLost) as lost:
            client.contribute(reset)
        assert (lost.value.status, isinstance(lost.value, ServiceError)) == (410, True)
