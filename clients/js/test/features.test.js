import assert from "node:assert/strict";
import { test } from "node:test";

import { encode, fnv1a, respond, width } from "../src/features.js";

const features = {
  intercept: true,
  fields: [
    { name: "length", kind: "number", low: 0, high: 200 },
    { name: "https", kind: "boolean" },
    { name: "tld", kind: "category", categories: ["com", "net"] },
    { name: "url", kind: "ngrams", sizes: [2], buckets: 8 },
  ],
  crosses: [
    ["https", "tld"],
    ["tld", "length"],
  ],
};
const example = { length: 50, https: true, tld: "net", url: "abc" };

test("FNV-1a of 32 bits gives the published values", () => {
  const of = (text) => fnv1a(new TextEncoder().encode(text));
  assert.deepEqual([of(""), of("a"), of("foobar")], [0x811c9dc5, 0xe40c292c, 0xbf9cf968]);
});

test("a record becomes intercept, fields and crosses, in order", () => {
  const grams = new Array(8).fill(0);
  for (const gram of ["ab", "bc"]) grams[fnv1a(new TextEncoder().encode(gram)) % 8] = 1;
  assert.deepEqual([...encode(features, example)], [1, 0.25, 1, 0, 1, ...grams, 0, 1, 0, 0.25]);
  assert.equal(width(features), encode(features, example).length);
});

test("what lies outside its range is clamped, what is not listed is all zeros", () => {
  const [, length, , com, net] = encode(features, { ...example, length: 1e9, tld: "org" });
  assert.deepEqual([length, com, net], [1, 0, 0]);
  assert.equal(encode(features, { ...example, length: -1 })[1], 0);
});

test("the first category may be left to the intercept", () => {
  const one = {
    intercept: false,
    fields: [{ name: "a", kind: "category", categories: ["x", "y", "z"], drop_first: true }],
  };
  assert.deepEqual([...encode(one, { a: "x" })], [0, 0]);
  assert.deepEqual([...encode(one, { a: "z" })], [0, 1]);
  assert.equal(width(one), 2);
});

test("categories may be whole numbers; nothing is no category", () => {
  const one = { intercept: false, fields: [{ name: "a", kind: "category", categories: ["1", "2"] }] };
  assert.deepEqual([...encode(one, { a: 2 })], [0, 1]);
  assert.deepEqual([...encode(one, { a: null })], [0, 0]);
});

test("the response is a class, a truth, a share of its range, or a count", () => {
  const number = { name: "y", kind: "number", low: 0, high: 10 };
  assert.equal(respond({ family: "linear", response: number }, { y: 5 }), 0.5);
  assert.equal(respond({ family: "poisson", response: number }, { y: 12 }), 10);
  assert.equal(respond({ family: "logistic", response: { name: "y", kind: "boolean" } }, { y: true }), 1);
  const category = { name: "y", kind: "category", categories: ["low", "high"] };
  assert.equal(respond({ family: "multinomial", response: category }, { y: "high" }), 1);
  assert.throws(() => respond({ family: "multinomial", response: category }, { y: "other" }), /one of low, high/);
  assert.throws(() => respond({ family: "multinomial", response: category }, {}), /no y/);
});

test("runs of characters are runs of the bytes of UTF-8", () => {
  const one = { intercept: false, fields: [{ name: "a", kind: "ngrams", sizes: [2], buckets: 4096 }] };
  assert.equal(
    encode(one, { a: "é" }).reduce((a, b) => a + b),
    1,
  ); // one letter, two bytes
  assert.equal(
    encode(one, { a: "x" }).reduce((a, b) => a + b),
    0,
  );
});

test("a record holds its own fields only", () => {
  const fields = ["constructor", "__proto__"].map((name) => ({ name, kind: "boolean" }));
  for (const field of fields) assert.throws(() => encode({ intercept: true, fields: [field] }, {}), /has no/);
  const own = JSON.parse('{"constructor": true, "__proto__": false}');
  assert.deepEqual([...encode({ intercept: false, fields }, own)], [1, 0]);
});

test("what cannot be encoded is refused without saying what it was", () => {
  for (const bad of [{ length: "secret" }, { length: NaN }, { https: "secret" }, { url: 7 }, { tld: undefined }]) {
    assert.throws(
      () => encode(features, { ...example, ...bad }),
      (error) => !error.message.includes("secret"),
    );
  }
  assert.throws(() => encode({ intercept: true, fields: [{ name: "x", kind: "image" }] }, { x: 1 }), /newer/);
});
