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

test("fields that make no sense are refused, and so is what cannot be counted", () => {
  const number = { name: "a", kind: "number", low: 0, high: 1 };
  const runs = { name: "a", kind: "ngrams", sizes: [2], buckets: 2 };
  const choice = { name: "a", kind: "category", categories: ["x", "y"] };
  const fields = [
    { ...number, low: 1 },
    { ...number, high: "1" },
    { ...number, high: null },
    { ...number, low: -1.7e308, high: 1.7e308 },
    { ...number, unit: "m" },
    { ...number, name: "" },
    { ...number, name: 3 },
    ...[-2, 0, 1.5, "2", [2], null, 2 ** 20 + 1].map((buckets) => ({ ...runs, buckets })),
    ...[[], [0], [-1], [1.5], ["2"], 2, [65]].map((sizes) => ({ ...runs, sizes })),
    ...[[], ["x", "x"], ["x", 1], "xy", { length: -2 }].map((categories) => ({ ...choice, categories })),
    ...[-3, 1, "yes"].map((drop_first) => ({ ...choice, drop_first })),
    { ...choice, categories: ["x"], drop_first: true },
    { name: "a", kind: "image" },
    { name: "a", kind: "constructor" },
    null,
    "number",
  ];
  const widths = [undefined, NaN, -1, 1, 2, 3, 4];
  for (const field of fields) {
    for (const weights of widths) {
      const bad = task({ weights, features: { intercept: true, fields: [field] } });
      assert.throws(() => checkTask(bad), { name: "BlindsightError" }, JSON.stringify(field));
    }
  }
  const [one, other] = [{ name: "a", kind: "boolean" }, { name: "b", kind: "boolean" }];
  for (const features of [
    { intercept: true, fields: [one, one] },
    { intercept: 2, fields: [one] },
    { intercept: true, fields: { length: 2 } },
    { intercept: true, fields: [one, other], crosses: [["a", "a"]] },
    { intercept: true, fields: [one, other], crosses: [["a", "c"]] },
    { intercept: true, fields: [one, other], crosses: [["a"]] },
    { intercept: true, fields: [one, other], crosses: ["ab"] },
    { intercept: true, fields: [one], extra: 1 },
    { intercept: false, fields: [] },
  ]) {
    for (const weights of [...widths, 0]) {
      const bad = task({ weights, features });
      assert.throws(() => checkTask(bad), { name: "BlindsightError" }, JSON.stringify(features));
    }
  }
  for (const values of [
    { participations: undefined },
    { participations: 0 },
    { participations: Infinity },
    { instances: -1 },
    { learning_rate: 0 },
    { clip: "1" },
    { clip: NaN },
    { version: 7 },
    { model: "" },
    { weights: "3" },
    { family: "constructor" },
    { family: "multinomial", response: { ...choice, categories: ["x"] } },
    { family: "multinomial", response: { ...choice, drop_first: true } },
    { response: runs },
    { family: "ordinal", weights: 4, response: choice },
  ]) {
    assert.throws(() => checkTask(task(values)), { name: "BlindsightError" }, JSON.stringify(values));
  }
  const dishonest = [{ unit: "both" }, { unit: null }, { epsilon: 2 ** -13 }, { epsilon: 2 ** 17 }, { delta: "0" }];
  for (const values of dishonest) {
    assert.throws(() => checkTask(task(values)), { name: "PrivacyError" }, JSON.stringify(values));
  }
  assert.throws(() => checkTask(noised({ kind: "constructor" })), { name: "PrivacyError" });
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
