/** What a server asks of its clients, and whether it keeps what it promises them. */

import { BlindsightError, PrivacyError } from "./errors.js";
import { classes, width } from "./features.js";
import { weightsNeeded } from "./glm.js";
import { checkFeatures, checkResponse, isWhole } from "./specs.js";

/** log2 of the scale of the noise, in steps of its grid. */
export const BITS = 24;

const MOST_WEIGHTS = 2 ** 22; // up to here the rounding of a norm is less than the room left for it

const LEAST_EPSILON = 2 ** -12;
const MOST_EPSILON = 2 ** 16;
const MOST_SENT = 2 ** 31;
const MOST_INSTANCES = 10_000;

const RESPONSES = new Map([
  ["linear", "number"],
  ["poisson", "number"],
  ["logistic", "boolean"],
  ["multinomial", "category"],
  ["ordinal", "category"],
]);
const NORMS = new Map([
  ["laplace", 1],
  ["gaussian", 2],
]);

/**
 * The task, if a client may work on it. What it costs depends on its number of weights and on the longest change in
 * steps of the noise's grid, and both are worked out again here: a client does not take a server's word for them.
 * @param {any} task
 * @param {string} [model] whose task it has to be: a budget is kept by model
 * @returns {import("../index.d.ts").Task}
 */
export function checkTask(task, model = task?.model) {
  if (!task?.features?.fields || !task.response || !task.noise || task.model !== model) {
    throw new BlindsightError(
      "the service sent no task for a linear model: check the address and the name of the model",
    );
  }
  checkFeatures(task.features);
  checkResponse(task.response);
  const needed = weightsNeeded(task.family, width(task.features), classes(task.response));
  const isOpen = task.family === "ordinal" && task.features.intercept; // its thresholds are intercepts already
  if (RESPONSES.get(task.family) !== task.response.kind || isOpen || needed !== task.weights || !isSound(task)) {
    throw new BlindsightError(`the task of ${task.model} does not match its model: tell the service's owner`);
  }
  checkPrivacy(task);
  return task;
}

/** Whether its plain values are what they should be. @param {any} task */
function isSound({ model, version, weights, instances, participations, learning_rate, clip }) {
  const words = [model, version].every((word) => typeof word === "string" && word !== "");
  const sizes = [learning_rate, clip].every((size) => typeof size === "number" && size > 0 && size < 1e6);
  const counts = isWhole(instances, 1, MOST_INSTANCES) && isWhole(participations, 1, MOST_SENT);
  return words && sizes && counts && isWhole(weights, 1, MOST_WEIGHTS);
}

/** Refuses noise that is worth less than the task's epsilon and delta. @param {import("../index.d.ts").Task} task */
function checkPrivacy({ model, noise, unit, norm, epsilon, delta }) {
  if (!["feature", "model"].includes(unit)) throw new PrivacyError(`the task of ${model} has no unit: nothing is sent`);
  if (noise.kind === "none") {
    if (epsilon !== "inf" || delta !== 0)
      throw new PrivacyError(`the task of ${model} has no noise but promises epsilon = ${epsilon}: nothing is sent`);
    return;
  }
  const whole = NORMS.get(noise.kind);
  if (whole === undefined || norm !== (unit === "feature" ? null : whole)) {
    throw new PrivacyError(`the noise of ${model} does not match the clipping of its updates: nothing is sent`);
  }
  if (
    !(typeof noise.grid === "number" && noise.grid > 0) ||
    noise.scale !== noise.grid * 2 ** BITS ||
    !Number.isSafeInteger(noise.bound) ||
    noise.bound < 1
  ) {
    throw new PrivacyError(`the noise of ${model} is not on a grid of 2^${BITS} steps: nothing is sent`);
  }
  const isPrice = typeof epsilon === "number" && epsilon >= LEAST_EPSILON && epsilon <= MOST_EPSILON;
  if (!isPrice || typeof delta !== "number" || !isEnough(noise, epsilon, delta)) {
    throw new PrivacyError(
      `the noise of ${model} is too small for the epsilon of ${epsilon} that it promises: nothing is sent`,
    );
  }
}

/** @param {{ kind: string, bound: number }} noise @param {number} epsilon @param {number} delta */
function isEnough(noise, epsilon, delta) {
  const shift = 2 * noise.bound; // exchanging all of a client's data turns one longest change into its opposite
  if (noise.kind === "laplace") return delta === 0 && shift <= epsilon * 2 ** BITS;
  return delta > 0 && delta < 1 && gaussianDelta(shift / 2 ** BITS, epsilon) <= delta * (1 + 1e-6);
}

/**
 * The smallest delta of Gaussian noise at that epsilon, for a shift in standard deviations (Balle and Wang 2018). The
 * rounded Gaussian costs no more.
 * @param {number} shift
 * @param {number} epsilon
 */
export function gaussianDelta(shift, epsilon) {
  const second = Math.exp(epsilon) * tail(epsilon / shift + shift / 2);
  return tail(epsilon / shift - shift / 2) - (Number.isFinite(second) ? second : 0);
}

/**
 * P(N > x) of a standard normal N: a series near the middle, a continued fraction further out.
 * @param {number} x
 * @returns {number}
 */
function tail(x) {
  if (x < 0) return 1 - tail(-x);
  const density = Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
  if (x < 3) {
    let [term, sum] = [x, x];
    for (let odd = 3; term > 1e-18 * sum; odd += 2) sum += term *= (x * x) / odd;
    return 0.5 - density * sum;
  }
  let fraction = x;
  for (let level = 200; level > 0; level -= 1) fraction = x + level / fraction;
  return density / fraction;
}
