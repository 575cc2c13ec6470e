/**
 * RSA blind signatures, RFC 9474 (RSABSSA-SHA384-PSS-Deterministic), the client's half: the issuer signs what it cannot
 * see. Hashes and randomness are the system's; blinding is arithmetic on whole numbers.
 */

import { BlindsightError } from "./errors.js";

const system = globalThis.crypto ?? (await import("node:crypto")).webcrypto; // Node 18 keeps it in a module
const HASH = 48;

/** @typedef {{ n: bigint, e: bigint, size: number }} Key modulus, exponent, bytes of the modulus */

/**
 * A blinded message, and what turns the signature of it into one of the message.
 * @param {Key} key @param {Uint8Array} message
 * @param {{ salt?: Uint8Array, r?: bigint }} [given] random unless given
 */
export async function blind(key, message, { salt = randomBytes(HASH), r = randomUnit(key) } = {}) {
  const encoded = fromBytes(await encode(message, bitLength(key.n) - 1, salt));
  const blinded = toBytes((encoded * power(r, key.e, key.n)) % key.n, key.size);
  return { blinded, inverse: invert(r, key.n), encoded };
}

/**
 * The signature of the message that was blinded, checked.
 * @param {Key} key @param {{ inverse: bigint, encoded: bigint }} made @param {Uint8Array} blindSignature
 */
export function finalize(key, { inverse, encoded }, blindSignature) {
  const signature = (fromBytes(blindSignature) * inverse) % key.n;
  if (blindSignature.length !== key.size || power(signature, key.e, key.n) !== encoded)
    throw new BlindsightError("the issuer did not sign what it was sent: it used another key");
  return toBytes(signature, key.size);
}

/** EMSA-PSS (RFC 8017, 9.1.1). @param {Uint8Array} message @param {number} bits @param {Uint8Array} salt */
async function encode(message, bits, salt) {
  const length = Math.ceil(bits / 8);
  const digest = await sha384(join(new Uint8Array(8), await sha384(message), salt));
  const block = join(new Uint8Array(length - salt.length - HASH - 2), Uint8Array.of(1), salt);
  const mask = await maskOf(digest, block.length);
  const masked = block.map((byte, index) => byte ^ mask[index]);
  masked[0] &= 0xff >> (8 * length - bits);
  return join(masked, digest, Uint8Array.of(0xbc));
}

/** @param {Uint8Array} seed @param {number} length */
async function maskOf(seed, length) {
  const parts = [];
  for (let counter = 0; counter * HASH < length; counter += 1)
    parts.push(await sha384(join(seed, toBytes(BigInt(counter), 4))));
  return join(...parts).subarray(0, length);
}

/** The key in an RFC 9578 token key: RSA in a SubjectPublicKeyInfo. @param {Uint8Array} encoded @returns {Key} */
export function readKey(encoded) {
  const [, bits] = items(items(encoded)[0]);
  const [n, e] = items(items(bits.subarray(1))[0]).map(fromBytes);
  return { n, e, size: Math.ceil(bitLength(n) / 8) };
}

/** The contents of the DER values in some bytes. @param {Uint8Array} der @returns {Uint8Array[]} */
function items(der) {
  const found = [];
  for (let at = 0; at < der.length; ) {
    let length = der[at + 1];
    let begin = at + 2;
    if (length >= 0x80) {
      begin += length - 0x80;
      length = Number(fromBytes(der.subarray(at + 2, begin)));
    }
    found.push(der.subarray(begin, begin + length));
    at = begin + length;
  }
  return found;
}

/** @param {bigint} base @param {bigint} exponent @param {bigint} modulus */
function power(base, exponent, modulus) {
  let [result, square] = [1n, base % modulus];
  for (let left = exponent; left > 0n; left >>= 1n) {
    if (left & 1n) result = (result * square) % modulus;
    square = (square * square) % modulus;
  }
  return result;
}

/** @param {bigint} value @param {bigint} modulus */
function invert(value, modulus) {
  let [a, b, x, y] = [value, modulus, 1n, 0n];
  while (b > 0n) [a, b, x, y] = [b, a % b, y, x - (a / b) * y];
  return ((x % modulus) + modulus) % modulus;
}

/** A number without a common factor with the modulus: one with a factor would have broken the key. @param {Key} key */
function randomUnit({ n, size }) {
  for (;;) {
    const r = fromBytes(randomBytes(size));
    if (r > 0n && r < n) return r;
  }
}

/** @param {number} count */
export const randomBytes = (count) => system.getRandomValues(new Uint8Array(count));

/** @param {Uint8Array<ArrayBuffer>} data */
const sha384 = async (data) => new Uint8Array(await system.subtle.digest("SHA-384", data));

/** @param {Uint8Array<ArrayBuffer>} data */
export const sha256 = async (data) => new Uint8Array(await system.subtle.digest("SHA-256", data));

/** @param {bigint} value */
const bitLength = (value) => value.toString(2).length;

/** @param {Uint8Array} bytes */
export const fromBytes = (bytes) => bytes.reduce((value, byte) => (value << 8n) | BigInt(byte), 0n);

/** @param {bigint} value @param {number} size */
export const toBytes = (value, size) =>
  Uint8Array.from({ length: size }, (_, index) => Number((value >> BigInt(8 * (size - 1 - index))) & 0xffn));

/** @param {...Uint8Array} parts */
export function join(...parts) {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  parts.reduce((at, part) => (all.set(part, at), at + part.length), 0);
  return all;
}
