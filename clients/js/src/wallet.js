/**
 * Admission tokens (Privacy Pass, RFC 9578, type 2): asked for in blinded form, kept until each is used once.
 *
 * Ask for many at a time and use them later: a token that is used right after it was issued can be guessed by its time.
 */

import { blind, finalize, fromBytes, join, randomBytes, readKey, sha256, toBytes } from "./blind_rsa.js";
import { alone, asStore } from "./budget.js";
import { BlindsightError } from "./errors.js";

const KEY = "blindsight:wallet";

/** Tokens in a store, by default the browser's. */
export class Wallet {
  #store;

  /** @param {{ store?: import("../index.d.ts").Store | Map<string, string> }} [options] */
  constructor({ store } = {}) {
    this.#store = asStore(store);
  }

  /**
   * Requests for the issuer, whose directory (issuer.json) is given: send them with whatever attests this device.
   * @param {import("../index.d.ts").Directory} directory @param {string} model @param {number} count
   */
  async ask(directory, model, count) {
    const now = Date.now() / 1000;
    const current = directory["token-keys"].filter((one) => one["not-before"] <= now && now < one["not-after"]);
    const newest = current.sort((one, other) => other["not-after"] - one["not-after"])[0];
    if (!newest) throw new BlindsightError("the issuer has no current key: fetch its issuer.json again");
    const encoded = fromText(newest["token-key"]);
    const [key, id] = [readKey(encoded), await sha256(encoded)];
    const challenge = await sha256(challengeOf(directory.issuer, model));
    const asked = [];
    for (let made = 0; made < count; made += 1) {
      const part = join(Uint8Array.of(0, 2), randomBytes(32), challenge, id);
      const { blinded, inverse, encoded: whole } = await blind(key, part);
      const request = join(Uint8Array.of(0, 2, id[31]), blinded);
      const kept = { model, part: toText(part), key: newest["token-key"], ends: newest["not-after"] };
      asked.push({ request, kept: { ...kept, inverse: inverse.toString(16), encoded: whole.toString(16) } });
    }
    await this.#change((book) => {
      for (const { request, kept } of asked) book.asked[toText(request)] = kept;
    });
    return asked.map(({ request }) => request);
  }

  /**
   * Turns the issuer's responses, in the order of the requests, into tokens.
   * @param {Uint8Array[]} requests @param {Uint8Array[]} responses
   */
  async accept(requests, responses) {
    await this.#change((book) => {
      requests.forEach((request, index) => {
        const name = toText(request);
        const kept = book.asked[name];
        if (!kept) throw new BlindsightError("this wallet did not make this request, or has its token already");
        const made = { inverse: BigInt(`0x${kept.inverse}`), encoded: BigInt(`0x${kept.encoded}`) };
        const signature = finalize(readKey(fromText(kept.key)), made, responses[index]);
        book.tokens.push({ model: kept.model, ends: kept.ends, token: toText(join(fromText(kept.part), signature)) });
        delete book.asked[name];
      });
    });
  }

  /** A token in base64, which is gone from here before it is used. @param {string} model @returns {Promise<string>} */
  async take(model) {
    let taken;
    await this.#change((book) => {
      book.tokens = book.tokens.filter((one) => one.ends >= Date.now() / 1000);
      const fitting = book.tokens.filter((one) => one.model === model);
      taken = fitting[Number(fromBytes(randomBytes(6)) % BigInt(fitting.length || 1))]; // in no order
      book.tokens = book.tokens.filter((one) => one !== taken);
    });
    if (!taken) throw new BlindsightError(`there are no admission tokens for ${model}: ask the issuer for more`);
    return /** @type {{ token: string }} */ (taken).token;
  }

  /** Tokens left for a model. @param {string} model */
  count(model) {
    return this.#read().tokens.filter((/** @type {{ model: string }} */ one) => one.model === model).length;
  }

  #read() {
    return JSON.parse(this.#store.getItem(KEY) ?? '{"asked": {}, "tokens": []}');
  }

  /** @param {(book: any) => void} act changes the book; nothing is written if it throws */
  async #change(act) {
    await alone(() => {
      const book = this.#read();
      act(book);
      this.#store.setItem(KEY, JSON.stringify(book));
    });
  }
}

/** RFC 9577, 2.1. @param {string} issuer @param {string} model */
function challengeOf(issuer, model) {
  const [name, origin] = [issuer, model].map((text) => new TextEncoder().encode(text));
  const size = (/** @type {Uint8Array} */ bytes) => toBytes(BigInt(bytes.length), 2);
  return join(Uint8Array.of(0, 2), size(name), name, Uint8Array.of(0), size(origin), origin);
}

/** URL-safe base64. @param {Uint8Array} bytes */
export const toText = (bytes) =>
  btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")).replaceAll("+", "-").replaceAll("/", "_");

/** @param {string} text */
export const fromText = (text) =>
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
