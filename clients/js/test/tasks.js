/** A small task for the tests, as a service would send it. */

/** @param {object} [changes] */
export function task(changes = {}) {
  const epsilon = changes.epsilon ?? 1;
  const scale = (2 * 0.001 * 1) / epsilon;
  return {
    model: "links",
    version: "0123456789abcdef",
    family: "logistic",
    weights: 3,
    features: {
      intercept: true,
      fields: [
        { name: "length", kind: "number", low: 0, high: 200 },
        { name: "https", kind: "boolean" },
      ],
    },
    response: { name: "phishing", kind: "boolean" },
    learning_rate: 0.001,
    clip: 1,
    unit: "feature",
    norm: null,
    noise: { kind: "laplace", scale, grid: scale / 2 ** 24, bound: Math.floor(epsilon * 2 ** 23) },
    epsilon,
    delta: 0,
    instances: 20,
    participations: 100,
    ...changes,
  };
}

/** Whole updates in L2 with Gaussian noise: epsilon 1, delta 1e-6, noise multiplier 8.45 over one reach. */
export function gaussianTask(changes = {}) {
  const bound = Math.floor(2 ** 24 / 8.45);
  const scale = 0.001 * 8.45;
  const noise = { kind: "gaussian", scale, grid: scale / 2 ** 24, bound };
  return task({ unit: "model", norm: 2, noise, epsilon: 1, delta: 1e-6, ...changes });
}

export const examples = [
  { length: 50, https: true, phishing: true },
  { length: 200, https: false, phishing: false },
];
