/**
 * The client's half of Draw and Discard (Pihur et al. 2018, Algorithm 1): one step on its own data, clipped, noised.
 *
 * The mean gradient is clipped, multiplied by the learning rate and truncated to whole steps of a grid; whole-number
 * noise is added; only then is there a floating-point number again. Truncation towards zero makes no change longer, and
 * the change is clipped to (1 - 2^-30) of its bound, which is more than the rounding of its norm.
 */

import { BlindsightError } from "./errors.js";
import { readable } from "./features.js";
import { gradient } from "./glm.js";
import { discreteLaplace, roundedGaussian } from "./noise.js";
import { BITS } from "./task.js";

const INSIDE = 1 - 2 ** -30;

/**
 * The weights to send back, and what they were made of. Only `weights` may leave the client: `change` is its data.
 * @param {import("../index.d.ts").Task} task
 * @param {Float32Array} drawn
 * @param {import("../index.d.ts").Example[]} examples none is fine, and looks like any other; so do unreadable ones
 * @param {import("./noise.js").Coins} [coins]
 * @returns {import("../index.d.ts").Contribution}
 */
export function clientUpdate(task, drawn, examples, coins) {
  return noised(task, slope(task, drawn, readable(task, examples)), drawn, coins);
}

/**
 * The mean gradient of the examples. What is wrong with the weights is refused here, before anything is paid for.
 * @param {import("../index.d.ts").Task} task
 * @param {Float32Array} drawn
 * @param {{ xs: Float64Array[], ys: number[] }} examples
 */
export function slope(task, drawn, { xs, ys }) {
  if (drawn.length !== task.weights || !drawn.every(Number.isFinite)) {
    throw new BlindsightError(
      `${task.model} has ${task.weights} finite weights and the service sent others: draw it again`,
    );
  }
  return gradient(task.family, drawn, xs, ys);
}

/**
 * One step down that gradient, clipped and noised.
 * @param {import("../index.d.ts").Task} task
 * @param {Float64Array} direction
 * @param {Float32Array} drawn
 * @param {import("./noise.js").Coins} [coins]
 * @returns {import("../index.d.ts").Contribution}
 */
export function noised(task, direction, drawn, coins) {
  const { kind, grid } = task.noise;
  if (kind === "none") return withoutNoise(task, drawn, direction);
  const change = wholeChange(task, direction);
  const noise = (kind === "laplace" ? discreteLaplace : roundedGaussian)(BITS, task.weights, coins);
  const noisy = change.map((steps, index) => steps + noise[index]);
  return { weights: moved(drawn, noisy, grid), noisy, change, noise, grid, drawn };
}

/**
 * The change of the weights in whole steps, before noise; it is never longer than the task's bound.
 * @param {import("../index.d.ts").Task} task
 * @param {ArrayLike<number>} direction
 */
export function wholeChange(task, direction) {
  const { grid, bound } = task.noise;
  if (grid === null) throw new BlindsightError("a task without noise has no grid");
  const steps = Float64Array.from(direction, (slope) => -(task.learning_rate / grid) * slope);
  return clipped(task.norm, steps, bound * INSIDE).map(Math.trunc);
}

/** @param {Float32Array} drawn @param {Float64Array} steps @param {number} grid */
export const moved = (drawn, steps, grid) => Float32Array.from(drawn, (weight, index) => weight + grid * steps[index]);

/** @param {import("../index.d.ts").Task} task @param {Float32Array} drawn @param {Float64Array} direction */
function withoutNoise(task, drawn, direction) {
  const change = clipped(task.norm, direction, task.clip).map((slope) => -task.learning_rate * slope);
  return { weights: moved(drawn, change, 1), noisy: change, change, noise: change.map(() => 0), grid: 1, drawn };
}

/** Every coordinate, or the norm of all, at most `limit`; what is no number counts as zero. */
function clipped(/** @type {1 | 2 | null} */ norm, /** @type {Float64Array} */ vector, /** @type {number} */ limit) {
  const finite = vector.map((value) => (Number.isFinite(value) ? value : 0));
  if (norm === null) return finite.map((value) => Math.min(limit, Math.max(-limit, value)));
  const largest = finite.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  if (largest === 0) return finite;
  // divided by the largest first: neither squares nor sums can overflow
  const sum = finite.reduce((total, value) => total + Math.abs(value / largest) ** norm, 0);
  const length = largest * sum ** (1 / norm);
  if (length === Infinity) return finite.map((value) => (value / largest) * (limit / finite.length));
  return finite.map((value) => value * Math.min(1, limit / length));
}
