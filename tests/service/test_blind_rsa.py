"""Blind signatures: the vectors of RFC 9474, and what a signer could learn."""

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from blindsight.errors import InvalidInput
from blindsight.service import blind_rsa

VECTOR = {
    name: value if name == "source" else bytes.fromhex(value)
    for name, value in json.loads((Path(__file__).parents[1] / "golden" / "blind_rsa.json").read_text()).items()
}


def key_of_the_rfc() -> rsa.RSAPrivateKey:
    p, q, e = (int.from_bytes(VECTOR[name]) for name in "pqe")
    d = rsa.rsa_recover_private_exponent(e, p, q)
    public = rsa.RSAPublicNumbers(e, p * q)
    numbers = rsa.RSAPrivateNumbers(
        p, q, d, rsa.rsa_crt_dmp1(d, p), rsa.rsa_crt_dmq1(d, q), rsa.rsa_crt_iqmp(p, q), public
    )
    return numbers.private_key()


@pytest.fixture(scope="module")
def key():
    return rsa.generate_private_key(65537, 2048)


def test_the_vectors_of_rfc_9474():
    key = key_of_the_rfc()
    n = key.public_key().public_numbers().n
    r = pow(int.from_bytes(VECTOR["inv"]), -1, n)
    blinded, inverse = blind_rsa.blind(key.public_key(), VECTOR["msg"], salt=VECTOR["salt"], r=r)
    assert inverse == int.from_bytes(VECTOR["inv"])
    assert blind_rsa.sign(key, blinded) == VECTOR["blind_sig"]
    assert blind_rsa.finalize(key.public_key(), VECTOR["msg"], VECTOR["blind_sig"], inverse) == VECTOR["sig"]
    assert blind_rsa.verify(key.public_key(), VECTOR["msg"], VECTOR["sig"])
    assert not blind_rsa.verify(key.public_key(), VECTOR["msg"] + b"x", VECTOR["sig"])


def test_whatever_the_signer_sees_fits_every_signature(key):
    """Each blinded message and each signature have an r: the signer cannot tell which belong together."""
    public = key.public_key()
    n, e = public.public_numbers().n, 65537
    made = []
    for message in (b"one", b"two"):
        blinded, inverse = blind_rsa.blind(public, message)
        made.append((blinded, blind_rsa.finalize(public, message, blind_rsa.sign(key, blinded), inverse)))
    for blinded, _ in made:
        for _, signature in made:
            whole = pow(int.from_bytes(signature), e, n)  # what was blinded, if they belonged together
            r = pow(int.from_bytes(blinded) * pow(whole, -1, n) % n, key.private_numbers().d, n)
            assert whole * pow(r, e, n) % n == int.from_bytes(blinded)


def test_blinded_messages_never_repeat(key):
    """Nor with one salt, which the signer can read off a signature: what hides whose it is, is the blinding alone."""
    for salt in (None, bytes(48)):
        assert len({blind_rsa.blind(key.public_key(), b"same", salt=salt)[0] for _ in range(50)}) == 50


def test_what_is_no_blinded_message_is_refused(key):
    n = key.public_key().public_numbers().n
    for blinded in (b"", bytes(256), bytes(255), n.to_bytes(256), b"\xff" * 256, bytes(257)):
        with pytest.raises(InvalidInput, match="a blinded message has"):
            blind_rsa.sign(key, blinded)


def test_signatures_of_another_key_or_message_are_refused(key):
    other = rsa.generate_private_key(65537, 2048)
    blinded, inverse = blind_rsa.blind(key.public_key(), b"one")
    signer = other if other.public_key().public_numbers().n > int.from_bytes(blinded) else key
    wrong = blind_rsa.sign(signer, blinded)
    with pytest.raises(InvalidInput, match="another key"):
        blind_rsa.finalize(key.public_key(), b"another message", wrong, inverse)
    with pytest.raises(InvalidInput, match="256 bytes"):
        blind_rsa.finalize(key.public_key(), b"one", wrong[1:], inverse)
