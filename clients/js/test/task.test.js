import assert from "node:assert/strict";
import { test } from "node:test";

import { checkTask, gaussianDelta } from "../src/task.js";
import { gaussianTask, task } from "./tasks.js";

const noised = (changes, base = task()) => ({ ...base, noise: { ...base.noise, ...changes } });

test("a task that keeps its promise is taken", () => {
  for (const good of [task(), task({ epsilon: 0.5 }), task({ unit: "model", norm: 1 }), gaussianTask()]) {
    assert.equal(checkTask(good), good);
  }
});

test("Gaussian noise costs what it is known to cost", () => {
  // Balle and Wang's formula in 50 digits: shift in standard deviations, epsilon, delta
  for (const [shift, epsilon, delta] of [
    [1, 1, 0.1269367375066],
    [2 / 8.5, 1, 8.836709893072e-7],
    [0.1, 0.1, 0.00875176814581],
    [4, 0, 0.9544997361036],
    [2, 8, 0.0004954017389387],
  ]) {
    assert.ok(
      Math.abs(gaussianDelta(shift, epsilon) / delta - 1) < 1e-9,
      `${shift}, ${epsilon}: ${gaussianDelta(shift, epsilon)}`,
    );
  }
  assert.ok(gaussianDelta(60, 1500) >= 0);
});

test("a server that promises more than its noise keeps is refused", () => {
  const { bound } = task().noise;
  const gaussian = gaussianTask();
  const broken = [
    noised({ bound: bound + 1 }),
    task({ epsilon: 1, noise: task({ epsilon: 2 }).noise }),
    noised({ bound: Math.floor(gaussian.noise.bound * 1.02) }, gaussian),
    { ...gaussian, delta: 0 },
    { ...gaussian, norm: 1 },
    { ...gaussian, norm: null },
    noised({ grid: task().noise.grid * 2 }),
    noised({ bound: 0.5 }),
    noised({ kind: "uniform" }),
    noised({ kind: "none" }),
    task({ delta: 0.1 }),
    task({ epsilon: "inf", noise: task().noise }),
  ];
  for (const bad of broken) assert.throws(() => checkTask(bad), { name: "PrivacyError" }, JSON.stringify(bad));
});

test("a task that does not fit its model, or is none, is refused", () => {
  for (const bad of [
    null,
    {},
    task({ weights: 4 }),
    task({ response: { name: "y", kind: "number", low: 0, high: 1 } }),
    task({ family: "forest" }),
    task({
      weights: 2 ** 22 + 2,
      features: { intercept: true, fields: [{ name: "a", kind: "ngrams", sizes: [1], buckets: 2 ** 22 + 1 }] },
    }),
  ]) {
    assert.throws(() => checkTask(bad), { name: "BlindsightError" });
  }
});
