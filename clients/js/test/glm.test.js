import assert from "node:assert/strict";
import { test } from "node:test";

import { gradient, predict, weightsNeeded } from "../src/glm.js";

const X = [
  [1, 0.5, 0],
  [1, 0, 0.25],
  [1, 1, 1],
];
const CASES = {
  linear: { weights: [0.1, -0.3, 0.7], ys: [0.2, 0.9, 0.4] },
  logistic: { weights: [0.1, -0.3, 0.7], ys: [0, 1, 1] },
  poisson: { weights: [0.1, -0.3, 0.7], ys: [0, 3, 1] },
  multinomial: { weights: [0.1, -0.3, 0.7, 0, 0.2, -0.1, 0.5, 0.4, -0.6], ys: [0, 2, 1] },
  ordinal: { weights: [0.8, -0.4, 0.1, -0.3, 0.7], ys: [0, 2, 1] },
};

const at = (weights, index, by) => weights.map((weight, place) => weight + (place === index ? by : 0));

/** The mean negative log-likelihood, written anew from the definitions. */
function loss(family, weights, xs, ys) {
  const each = xs.map((x, index) => {
    const y = ys[index];
    const score = x.reduce((sum, value, place) => sum + value * weights[place], 0);
    if (family === "linear") return (score - y) ** 2 / 2;
    if (family === "logistic") return Math.log(1 + Math.exp(score)) - y * score;
    if (family === "poisson") return Math.exp(score) - y * score;
    if (family === "multinomial") return -Math.log(predict(family, weights, x)[y]);
    const shared = x.reduce((sum, value, place) => sum + value * weights[2 + place], 0);
    return (
      [0, 1].reduce(
        (sum, j) => sum + Math.log(1 + Math.exp(weights[j] + shared)) - (y > j) * (weights[j] + shared),
        0,
      ) / 2
    );
  });
  return each.reduce((sum, one) => sum + one, 0) / xs.length;
}

for (const [family, { weights, ys }] of Object.entries(CASES)) {
  test(`the gradient of a ${family} model is the slope of its loss`, () => {
    const found = gradient(family, weights, X, ys);
    assert.equal(found.length, weightsNeeded(family, 3, 3));
    weights.forEach((_, index) => {
      const slope =
        (loss(family, at(weights, index, 1e-5), X, ys) - loss(family, at(weights, index, -1e-5), X, ys)) / 2e-5;
      assert.ok(Math.abs(found[index] - slope) < 1e-8, `${index}: ${found[index]} and ${slope}`);
    });
  });
}

test("probabilities of classes add up, even where noise left thresholds out of order", () => {
  const far = predict("ordinal", [-2, 2, 0], [1]);
  assert.ok(far.every((chance) => chance >= 0));
  assert.ok(Math.abs(far.reduce((sum, one) => sum + one) - 1) < 1e-12);
});

test("large scores stay numbers", () => {
  assert.equal(predict("logistic", [-1e6], [1]), 0);
  assert.equal(predict("logistic", [1e6], [1]), 1);
  assert.ok(Number.isFinite(predict("poisson", [1e6], [1])));
  assert.deepEqual(predict("multinomial", [1e6, 0], [1]), [1, 0]);
});

test("no examples, no direction; no such family, no model", () => {
  assert.deepEqual([...gradient("logistic", [1, 2], [], [])], [0, 0]);
  assert.throws(() => gradient("forest", [1], [[1]], [1]), /newer/);
});
