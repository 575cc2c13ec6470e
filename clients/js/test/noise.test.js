import assert from "node:assert/strict";
import { webcrypto } from "node:crypto";
import { test } from "node:test";

import { Coins, discreteLaplace, roundedGaussian } from "../src/noise.js";

const DRAWS = 20_000;
const LAWS = {
  laplace: { draw: discreteLaplace, weight: (x, scale) => Math.exp(-Math.abs(x) / scale) },
  gaussian: { draw: roundedGaussian, weight: (x, scale) => mass((x - 0.5) / scale, (x + 0.5) / scale) },
};

/** The mass of a standard normal between two numbers close to each other, by Simpson's rule in 16 parts. */
function mass(low, high) {
  const step = (high - low) / 16;
  const parts = Array.from({ length: 17 }, (_, i) => {
    const factor = i === 0 || i === 16 ? 1 : i % 2 === 1 ? 4 : 2;
    return factor * Math.exp(-((low + i * step) ** 2) / 2);
  });
  return (step / 3) * parts.reduce((a, b) => a + b);
}

/** Chi-square of the draws against a law, over values whose expected count is large, with all others as one cell. */
function chiSquare(draws, weight, scale) {
  const reach = Math.ceil(30 * scale);
  const total = Array.from({ length: 2 * reach + 1 }, (_, i) => weight(i - reach, scale)).reduce((a, b) => a + b);
  const counts = new Map();
  for (const x of draws) counts.set(x, (counts.get(x) ?? 0) + 1);
  let [statistic, cells, seen, expectedSeen] = [0, 0, 0, 0];
  for (let x = -reach; x <= reach; x += 1) {
    const expected = (draws.length * weight(x, scale)) / total;
    if (expected < 20) continue;
    const count = counts.get(x) ?? 0;
    statistic += (count - expected) ** 2 / expected;
    [cells, seen, expectedSeen] = [cells + 1, seen + count, expectedSeen + expected];
  }
  const rest = draws.length - expectedSeen;
  if (rest > 5) [statistic, cells] = [statistic + (draws.length - seen - rest) ** 2 / rest, cells + 1];
  const freedom = cells - 1;
  return (statistic - freedom) / Math.sqrt(2 * freedom); // about a standard normal number under the law
}

for (const [name, { draw, weight }] of Object.entries(LAWS)) {
  for (const bits of [1, 3]) {
    test(`${name} at scale 2^${bits} follows its law, and not the law at two thirds or three halves`, () => {
      const draws = draw(bits, DRAWS);
      assert.ok(chiSquare(draws, weight, 2 ** bits) < 7); // beyond once in millions of runs
      assert.ok(chiSquare(draws, weight, (2 ** bits * 2) / 3) > 50);
      assert.ok(chiSquare(draws, weight, (2 ** bits * 3) / 2) > 50);
    });
  }

  test(`${name} at the scale in use has its spread, its fourth moment and whole steps`, () => {
    const draws = draw(24, DRAWS).map((x) => x / 2 ** 24);
    const mean = (power) => draws.reduce((sum, x) => sum + x ** power, 0) / DRAWS;
    const [second, fourth] = name === "laplace" ? [2, 24] : [1, 3];
    assert.ok(Math.abs(mean(1)) < 8 * Math.sqrt(second / DRAWS));
    assert.ok(Math.abs(mean(2) / second - 1) < 0.15); // 2/3 and 3/2 of the scale would be 0.44 and 2.25
    assert.ok(Math.abs(mean(4) / fourth - 1) < 0.6);
    assert.ok(draws.every((x) => Number.isInteger(x * 2 ** 24)));
    assert.ok(new Set(draws.map((x) => Math.abs((x * 2 ** 24) % 1024))).size > 900); // the last bits are random too
  });
}

test("uniform numbers are uniform, and none are favoured by a remainder", () => {
  const words = [2 ** 32 - 1, 5, 2 ** 32 - 1, 2 ** 31];
  const coins = new Coins((array) => array.set(words));
  assert.equal(coins.below(3), 2); // the last word would be a 1,431,655,766th zero: thrown away
  assert.equal(coins.bits(1), 1);
  assert.equal(coins.bits(0), 0);
  assert.equal(coins.bits(1), 1);
  const many = new Coins();
  const largest = Math.max(...Array.from({ length: 2000 }, () => many.bits(49)));
  assert.ok(largest < 2 ** 49 && largest > 2 ** 48);
});

test("a coin of exp(-g) comes up as often as that", () => {
  const coins = new Coins();
  for (const [numerator, bits] of [
    [0, 3],
    [1, 3],
    [7, 3],
    [1, 0],
    [3 * 2 ** 47, 49],
  ]) {
    const share = Array.from({ length: DRAWS }, () => coins.expMinus(numerator, bits)).filter(Boolean).length / DRAWS;
    assert.ok(
      Math.abs(share - Math.exp(-numerator / 2 ** bits)) < (6 * 0.5) / Math.sqrt(DRAWS),
      `${numerator}/2^${bits}`,
    );
  }
});

test("the randomness is the system's, and never Math.random", (t) => {
  t.mock.method(Math, "random", () => assert.fail("Math.random is not cryptographic"));
  const asked = t.mock.method(webcrypto, "getRandomValues");
  discreteLaplace(24, 3);
  roundedGaussian(24, 3);
  assert.ok(asked.mock.callCount() >= 2);
  assert.notDeepEqual(discreteLaplace(24, 4), discreteLaplace(24, 4));
});

test("the Gaussian is a rounded one: its variance is a twelfth above that of the discrete Gaussian", () => {
  const draws = roundedGaussian(1, 300_000);
  const variance = draws.reduce((sum, x) => sum + x * x, 0) / draws.length;
  assert.ok(Math.abs(variance - 4 - 1 / 12) < 5 * 4 * Math.sqrt(2 / draws.length)); // a twelfth is eight of these
});

test("digits that tie are read on, and the first bit left out rounds", () => {
  const zero = [0, 0, 2 ** 31]; // coins of exp(-1/2): the first fails, so the whole part is 0
  const half = 0x80000080; // 2^-1 + 2^-25, half a step more than a whole number of them
  const larger = [half, half, 5, 6]; // another number with the same first digit and a smaller second one: heads
  const tails = [2, 2 ** 32 - 1]; // the case that x decides again, and another number above it
  const drawn = (sign) => {
    const words = [...zero, ...larger, ...tails, sign];
    return roundedGaussian(24, 1, new Coins((array) => array.set(words)))[0];
  };
  assert.equal(drawn(2 ** 31), -(2 ** 23 + 1));
  assert.equal(drawn(0), 2 ** 23 + 1);
});

test("a scale that cannot be drawn exactly is refused", () => {
  for (const bits of [0, 25, 1.5, NaN]) assert.throws(() => discreteLaplace(bits, 1), /2\^1 to 2\^24/);
});
