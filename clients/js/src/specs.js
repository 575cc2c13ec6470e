/**
 * Whether a server's task is valid, by the rules of the Python client. Otherwise a field with minus two buckets would
 * give a model a negative number of weights, and refund the budget.
 */

import { BlindsightError } from "./errors.js";

const MOST_BUCKETS = 2 ** 20;
const LONGEST_RUN = 64;

/**
 * For each kind of field: its keys, and whether they hold what they may.
 * @type {Map<string, [string[], (field: any) => boolean]>}
 */
const KINDS = new Map([
  ["number", [["low", "high"], isRange]],
  ["boolean", [[], () => true]],
  ["category", [["categories", "drop_first"], isChoice]],
  ["ngrams", [["sizes", "buckets"], isRuns]],
]);

/** Refuses features that no model could read. @param {any} features */
export function checkFeatures(features) {
  const { intercept, fields, crosses = [] } = onlyWith(features, ["intercept", "fields", "crosses"]);
  if (typeof intercept !== "boolean" || !Array.isArray(fields) || !Array.isArray(crosses)) throw senseless("features");
  fields.forEach(checkField);
  const names = new Set(fields.map(({ name }) => name));
  if (names.size < fields.length) throw senseless("features");
  for (const pair of crosses) {
    const isPair = Array.isArray(pair) && pair.length === 2 && pair[0] !== pair[1];
    if (!isPair || !pair.every((name) => names.has(name))) throw senseless("a cross");
  }
}

/** Refuses what a model cannot predict. @param {any} response */
export function checkResponse(response) {
  checkField(response);
  const { kind, categories, drop_first } = response;
  const isFixed = kind === "category" && (drop_first || categories.length < 2);
  if (kind === "ngrams" || isFixed) throw senseless("a response");
}

/** @param {any} field */
function checkField(field) {
  const [keys, holds] = KINDS.get(field?.kind) ?? [];
  if (!keys || !holds)
    throw new BlindsightError("this model has a kind of field that this client does not know: use a newer client");
  const { name } = onlyWith(field, ["name", "kind", ...keys]);
  if (typeof name !== "string" || !name || name.includes("\0") || !holds(field)) throw senseless("a field");
}

/** A whole number from `least` to `most`. @param {unknown} value @param {number} least @param {number} most */
export const isWhole = (value, least, most) =>
  Number.isSafeInteger(value) && least <= Number(value) && Number(value) <= most;

/** @param {*} field */
function isRange({ low, high }) {
  return typeof low === "number" && typeof high === "number" && low < high && Number.isFinite(high - low);
}

/** @param {*} field */
function isChoice({ categories, drop_first = false }) {
  if (!Array.isArray(categories) || typeof drop_first !== "boolean") return false;
  const distinct = new Set(categories).size === categories.length;
  return distinct && categories.every((one) => typeof one === "string") && categories.length >= (drop_first ? 2 : 1);
}

/** @param {*} field */
function isRuns({ sizes, buckets }) {
  const runs = Array.isArray(sizes) && sizes.length > 0 && sizes.every((size) => isWhole(size, 1, LONGEST_RUN));
  return runs && isWhole(buckets, 1, MOST_BUCKETS);
}

/** The same object, if it has no key that this client does not know. @param {any} values @param {string[]} keys */
function onlyWith(values, keys) {
  if (!values || typeof values !== "object" || !Object.keys(values).every((key) => keys.includes(key)))
    throw senseless("something");
  return values;
}

/** @param {string} what */
const senseless = (what) => new BlindsightError(`${what} of the task is invalid: tell the service's owner`);
