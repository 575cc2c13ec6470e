/**
 * Generalised linear models: what a client predicts, and the direction in which its examples would move the weights.
 *
 * With x in [0, 1]: linear, logistic and poisson have one weight for each x; multinomial one row of weights for each
 * class, classes slow; ordinal has one threshold "is it more than j?" for each class but the last, then weights that
 * the thresholds share.
 */

import { BlindsightError } from "./errors.js";

const LARGEST_EXPONENT = 700; // exp of more is not a number

/** @typedef {ArrayLike<number>} Numbers */

/** How many weights a model has. @param {string} family @param {number} features @param {number} classes */
export function weightsNeeded(family, features, classes) {
  check(family);
  if (family === "multinomial") return classes * features;
  return family === "ordinal" ? classes - 1 + features : features;
}

/**
 * The expected response of one example; for multinomial and ordinal the probabilities of the classes.
 * @param {string} family
 * @param {Numbers} weights
 * @param {Numbers} x
 * @returns {number | number[]}
 */
export function predict(family, weights, x) {
  check(family);
  if (family === "multinomial") return softmax(rows(weights, x));
  if (family === "ordinal") {
    // noise may have put the thresholds out of order
    const more = [
      1,
      ...thresholds(weights, x)
        .map(sigmoid)
        .sort((one, other) => other - one),
      0,
    ];
    return more.slice(0, -1).map((chance, index) => chance - more[index + 1]);
  }
  return mean(family, dot(weights, x));
}

/**
 * The mean gradient of the loss over the examples; zeros without examples.
 * @param {string} family
 * @param {Numbers} weights
 * @param {Numbers[]} xs
 * @param {number[]} ys numbers, or the index of each example's class
 * @returns {Float64Array}
 */
export function gradient(family, weights, xs, ys) {
  check(family);
  const total = new Float64Array(weights.length);
  xs.forEach((x, index) => addGradient(family, weights, x, ys[index], total));
  return xs.length ? total.map((sum) => sum / xs.length) : total;
}

/** @param {string} family @param {Numbers} weights @param {Numbers} x @param {number} y @param {Float64Array} total */
function addGradient(family, weights, x, y, total) {
  if (family === "multinomial") {
    const chances = softmax(rows(weights, x));
    chances.forEach((chance, row) => addScaled(chance - (row === y ? 1 : 0), x, total, row * x.length));
  } else if (family === "ordinal") {
    const scores = thresholds(weights, x);
    const excess = scores.map((score, place) => (sigmoid(score) - (y > place ? 1 : 0)) / scores.length);
    addScaled(1, excess, total, 0);
    addScaled(
      excess.reduce((sum, one) => sum + one, 0),
      x,
      total,
      scores.length,
    );
  } else {
    addScaled(mean(family, dot(weights, x)) - y, x, total, 0);
  }
}

/** @param {number} factor @param {Numbers} values @param {Float64Array} total @param {number} start */
function addScaled(factor, values, total, start) {
  for (let index = 0; index < values.length; index += 1) total[start + index] += factor * values[index];
}

/** @param {string} family @param {number} score */
function mean(family, score) {
  if (family === "logistic") return sigmoid(score);
  return family === "poisson" ? Math.exp(Math.min(score, LARGEST_EXPONENT)) : score;
}

/** @param {number} score */
const sigmoid = (score) => (score >= 0 ? 1 / (1 + Math.exp(-score)) : Math.exp(score) / (1 + Math.exp(score)));

/** @param {number[]} scores */
function softmax(scores) {
  const top = scores.reduce((most, score) => Math.max(most, score), -Infinity); // too many for arguments
  const raised = scores.map((score) => Math.exp(score - top));
  const total = raised.reduce((sum, one) => sum + one, 0);
  return raised.map((one) => one / total);
}

/** The scores of the classes. @param {Numbers} weights @param {Numbers} x */
const rows = (weights, x) =>
  Array.from({ length: weights.length / x.length }, (_, row) => dot(weights, x, row * x.length));

/** The scores of the thresholds. @param {Numbers} weights @param {Numbers} x */
function thresholds(weights, x) {
  const count = weights.length - x.length;
  const shared = dot(weights, x, count);
  return Array.from({ length: count }, (_, place) => weights[place] + shared);
}

/** @param {Numbers} weights @param {Numbers} x */
function dot(weights, x, start = 0) {
  let sum = 0;
  for (let index = 0; index < x.length; index += 1) sum += weights[start + index] * x[index];
  return sum;
}

/** @param {string} family */
function check(family) {
  if (!["linear", "logistic", "multinomial", "poisson", "ordinal"].includes(family)) {
    throw new BlindsightError(`this client cannot train models of the family ${family}: use a newer client`);
  }
}
