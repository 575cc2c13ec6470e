/** The same numbers as the Python client, from the vectors that it wrote. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { encode, fnv1a, readable, respond } from "../src/features.js";
import { gradient, predict } from "../src/glm.js";
import { checkTask } from "../src/task.js";
import { clientUpdate, moved, wholeChange } from "../src/update.js";

const golden = JSON.parse(
  readFileSync(new URL("../../../tests/golden/draw_and_discard.json", import.meta.url), "utf8"),
);

/** Equal to 1e-12 of the largest. */
function close(found, wanted) {
  const [one, other] = [Array.from(found).flat(), Array.from(wanted).flat()];
  assert.equal(one.length, other.length);
  const largest = Math.max(...other.map(Math.abs), 1e-300);
  one.forEach((value, index) =>
    assert.ok(Math.abs(value - other[index]) <= 1e-12 * largest, `${index}: ${value} and ${other[index]}`),
  );
}

test("hashes of runs of bytes", () => {
  for (const { text, size, fnv1a: wanted } of golden.hashes) {
    const bytes = new TextEncoder().encode(text);
    const found = Array.from({ length: Math.max(bytes.length - size + 1, 0) }, (_, start) =>
      fnv1a(bytes.subarray(start, start + size)),
    );
    assert.deepEqual(found, wanted);
  }
});

golden.cases.forEach(
  ({ task, rows, weights, x, y, prediction, gradient: slope, whole_change, noise, new_weights }, number) => {
    test(`case ${number}: ${task.family}, ${task.noise.kind} noise by ${task.unit}`, () => {
      checkTask(task);
      const xs = rows.map((row) => encode(task.features, row));
      const ys = rows.map((row) => respond(task, row));
      xs.forEach((found, index) => close(found, x[index]));
      close(ys, y);
      close(xs.map((one) => predict(task.family, weights, one)).flat(), prediction.flat());
      const direction = gradient(task.family, weights, xs, ys);
      close(direction, slope);
      if (task.noise.kind === "none") {
        const { weights: found } = clientUpdate(task, Float32Array.from(weights), rows);
        found.forEach((weight, index) =>
          assert.ok(Math.abs(weight - new_weights[index]) <= Math.abs(weight) * 2 ** -23),
        );
        return;
      }
      const change = wholeChange(task, direction);
      change.forEach((steps, index) =>
        assert.ok(Math.abs(steps - whole_change[index]) <= 1, `${steps} and ${whole_change[index]}`),
      );
      const noisy = Float64Array.from(whole_change, (steps, index) => steps + noise[index]);
      const found = moved(Float32Array.from(weights), noisy, task.noise.grid);
      found.forEach((weight, index) => assert.ok(Math.abs(weight - new_weights[index]) <= Math.abs(weight) * 2 ** -23));
    });
  },
);

golden.cases.forEach(({ task, rows, x, y }, number) => {
  test(`case ${number}: a row that cannot be encoded is absent`, () => {
    const names = new Set([...task.features.fields.map(({ name }) => name), task.response.name]);
    for (const name of names) {
      const { [name]: _, ...lacking } = rows[0];
      for (const bad of [lacking, ...golden.unreadable[name].map((value) => ({ ...rows[0], [name]: value }))]) {
        const { xs, ys } = readable(task, [...rows.slice(0, 2), bad, ...rows.slice(2)]);
        assert.equal(xs.length, x.length, `${name}: ${JSON.stringify(bad[name])}`);
        xs.forEach((found, index) => close(found, x[index]));
        close(ys, y);
      }
    }
  });
});

test("there is a case for every family and every noise", () => {
  const families = new Set(golden.cases.map(({ task }) => task.family));
  const noises = new Set(golden.cases.map(({ task }) => `${task.noise.kind} ${task.unit}`));
  assert.ok(["linear", "logistic", "multinomial", "poisson", "ordinal"].every((family) => families.has(family)));
  assert.ok(
    ["laplace feature", "laplace model", "gaussian model"].every((noise) => noises.has(noise)),
    [...noises].join(),
  );
});
