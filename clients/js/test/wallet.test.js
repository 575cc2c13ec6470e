/** Blind signatures by the vectors of RFC 9474 and RFC 9578, which the Python client reads too, and a wallet of tokens. */

import assert from "node:assert/strict";
import { createPublicKey, generateKeyPairSync, verify } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { blind, finalize, fromBytes, readKey, toBytes } from "../src/blind_rsa.js";
import { Wallet, fromText, toText } from "../src/wallet.js";

const vector = JSON.parse(readFileSync(new URL("../../../tests/golden/blind_rsa.json", import.meta.url), "utf8"));
const bytes = (name) => Uint8Array.from(Buffer.from(vector[name], "hex"));
const whole = (name) => BigInt(`0x${vector[name]}`);

const power = (base, exponent, modulus) => {
  let [result, square] = [1n, base % modulus];
  for (let left = exponent; left > 0n; left >>= 1n) {
    if (left & 1n) result = (result * square) % modulus;
    square = (square * square) % modulus;
  }
  return result;
};

test("the vectors of RFC 9474", async () => {
  const n = whole("p") * whole("q");
  const key = { n, e: whole("e"), size: 512 };
  const r = power(whole("inv"), (whole("p") - 1n) * (whole("q") - 1n) - 1n, n);
  const made = await blind(key, bytes("msg"), { salt: bytes("salt"), r });
  assert.equal(made.inverse, whole("inv"));
  assert.equal(power(whole("blind_sig"), key.e, n), fromBytes(made.blinded)); // the issuer's signature is of this
  assert.deepEqual(finalize(key, made, bytes("blind_sig")), bytes("sig"));
  assert.throws(() => finalize(key, made, bytes("sig")), /another key/);
});

test("the vectors of RFC 9578", async () => {
  const file = new URL("../../../tests/golden/privacy_pass.json", import.meta.url);
  const given = JSON.parse(readFileSync(file, "utf8"));
  const of = (name) => Uint8Array.from(Buffer.from(given[name], "hex"));
  const key = readKey(of("pkS"));
  const part = of("token").subarray(0, 98);
  const made = await blind(key, part, { salt: of("salt"), r: fromBytes(of("blind")) });
  assert.deepEqual(made.blinded, of("token_request").subarray(3));
  assert.deepEqual(finalize(key, made, of("token_response")), of("token").subarray(98));
});

/** An issuer with one key, as `blindsight issuer` writes its directory. */
function issuer() {
  const { publicKey, privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const spki = new Uint8Array(publicKey.export({ type: "spki", format: "der" }));
  const now = Date.now() / 1000;
  const key = { "token-type": 2, "token-key": toText(spki), "not-before": now - 1, "not-after": now + 1000 };
  const { n, d } = privateKey.export({ format: "jwk" });
  const [modulus, exponent] = [n, d].map((text) => fromBytes(Buffer.from(text, "base64url")));
  const sign = (request) => toBytes(power(fromBytes(request.subarray(3)), exponent, modulus), 256);
  return { directory: { issuer: "issuer.example.org", "token-keys": [key] }, sign, spki };
}

test("a wallet's tokens carry the issuer's signature, and each is taken once", async () => {
  const { directory, sign, spki } = issuer();
  const wallet = new Wallet({ store: new Map() });
  const requests = await wallet.ask(directory, "phishing", 2);
  assert.equal(new Set(requests.map(toText)).size, 2);
  assert.deepEqual(requests.map(({ length }) => length), [259, 259]);
  await assert.rejects(wallet.accept(requests, [new Uint8Array(256), new Uint8Array(256)]), /did not sign/);
  await wallet.accept(requests, requests.map(sign));
  await assert.rejects(wallet.accept(requests, requests.map(sign)), /has its token already/);
  assert.equal(wallet.count("phishing"), 2);
  const tokens = [await wallet.take("phishing"), await wallet.take("phishing")].map(fromText);
  assert.equal(readKey(spki).size, 256);
  const key = createPublicKey({ key: Buffer.from(spki), format: "der", type: "spki" });
  for (const token of tokens) {
    assert.equal(token.length, 354);
    const pss = { key, padding: 6, saltLength: 48 }; // RSA_PKCS1_PSS_PADDING
    assert.ok(verify("sha384", token.subarray(0, 98), pss, token.subarray(98)));
  }
  assert.notDeepEqual(tokens[0], tokens[1]);
  await assert.rejects(wallet.take("phishing"), /no admission tokens/);
});
