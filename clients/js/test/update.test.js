import assert from "node:assert/strict";
import { test } from "node:test";

import { clientUpdate, wholeChange } from "../src/update.js";
import { examples, gaussianTask, task } from "./tasks.js";

const length = (vector, norm) => vector.reduce((sum, value) => sum + Math.abs(value) ** norm, 0) ** (1 / norm);
const spread = (vectors) =>
  Math.sqrt(vectors.flatMap((v) => [...v]).reduce((sum, x) => sum + x * x, 0) / (vectors.length * vectors[0].length));
const ZEROS = new Float32Array(3);

test("what is sent is what was drawn, one step, and noise in whole steps of the grid", () => {
  const asked = task();
  const drawn = Float32Array.from([0.5, -0.25, 0]);
  const { weights, change, noise, noisy, grid } = clientUpdate(asked, drawn, examples);
  assert.ok([...change, ...noise].every(Number.isInteger));
  assert.deepEqual(
    [...noisy],
    [...change].map((steps, index) => steps + noise[index]),
  );
  assert.deepEqual(
    [...weights],
    [...drawn].map((weight, index) => Math.fround(weight + grid * noisy[index])),
  );
});

test("without noise the step is the learning rate down the mean gradient", () => {
  const plain = task({ noise: { kind: "none", scale: 0, grid: null, bound: null }, epsilon: "inf" });
  const { weights } = clientUpdate(plain, ZEROS, examples);
  const mean = [0, (-0.5 * 0.25 + 0.5 * 1) / 2, -0.25];
  mean.forEach((slope, index) => assert.ok(Math.abs(weights[index] + 0.001 * slope) < 1e-10));
});

test("noise reaches every weight, with the scale that the task states, not two thirds or three halves of it", () => {
  for (const [asked, deviation] of [
    [task(), Math.SQRT2],
    [gaussianTask(), 1],
  ]) {
    const sent = Array.from({ length: 3000 }, () => clientUpdate(asked, ZEROS, []).weights);
    const ratio = spread(sent) / (asked.noise.scale * deviation);
    assert.ok(ratio > 0.9 && ratio < 1.1, `${asked.noise.kind}: ${ratio}`); // 2/3 and 3/2 lie far outside
  }
});

test("no change is longer than its bound, however large the gradient", () => {
  const wild = [
    [1e300, -1e300, 1e300],
    [3, 4, 0],
    [1e-12, 0, 0],
    [NaN, Infinity, 1],
    [-5, 5, 5],
  ];
  for (const asked of [task(), task({ unit: "model", norm: 1 }), gaussianTask()]) {
    for (const direction of wild) {
      const steps = wholeChange(asked, direction);
      const reached = asked.norm === null ? Math.max(...steps.map(Math.abs)) : length(steps, asked.norm);
      assert.ok(steps.every(Number.isInteger));
      assert.ok(reached <= asked.noise.bound, `${reached} of ${asked.noise.bound}`);
    }
    const far = wholeChange(asked, [1e300, 0, 0]);
    assert.ok(far[0] < -0.999 * asked.noise.bound); // and the bound is used
    assert.deepEqual([...wholeChange(asked, [NaN, Infinity, 0])].map(Math.abs), [0, 0, 0]);
  }
});

test("a clipped gradient keeps its direction", () => {
  const steps = wholeChange(gaussianTask(), [300, 400, 0]);
  assert.ok(Math.abs(steps[0] / steps[1] - 0.75) < 1e-6 && steps[0] < 0);
});

test("a model of the wrong size or with weights that are no numbers is refused", () => {
  assert.throws(() => clientUpdate(task(), new Float32Array(2), examples), /3 finite weights/);
  assert.throws(() => clientUpdate(task(), Float32Array.from([0, NaN, 0]), examples), /3 finite weights/);
});
