/**
 * From a client's own record to numbers in [0, 1], in the order in which the server keeps its weights.
 *
 * Intercept, then fields in order, then crosses (the first field's coordinates slow, the second's fast).
 */

import { BlindsightError } from "./errors.js";

const encoder = new TextEncoder();

/** FNV-1a of 32 bits over some bytes. @param {Uint8Array} bytes */
export function fnv1a(bytes) {
  let hash = 0x811c9dc5;
  for (const byte of bytes) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return hash;
}

/**
 * All records that can be encoded, with their responses. One that cannot counts as absent, whatever is wrong with it: a
 * client that stays silent over a value would reveal it, and a server could leave one category out of the response.
 * @param {import("../index.d.ts").Task} task
 * @param {import("../index.d.ts").Example[]} examples
 * @returns {{ xs: Float64Array[], ys: number[] }}
 */
export function readable(task, examples) {
  if (!Array.isArray(examples)) throw new BlindsightError("examples are a list of records: give one, or an empty list");
  const pairs = Array.from(examples).flatMap((example) => {
    try {
      return [{ x: encode(task.features, example), y: respond(task, example) }];
    } catch {
      return [];
    }
  });
  return { xs: pairs.map(({ x }) => x), ys: pairs.map(({ y }) => y) };
}

/**
 * The numbers of one record; a record that cannot be encoded is refused, which helps to prepare records.
 * @param {import("../index.d.ts").Features} features
 * @param {import("../index.d.ts").Example} example
 * @returns {Float64Array}
 */
export function encode(features, example) {
  const coordinates = new Map(
    features.fields.map((field) => [field.name, encodeField(field, held(example, field.name))]),
  );
  const crosses = (features.crosses ?? []).map((pair) => cross(...both(pair, coordinates)));
  return Float64Array.from([features.intercept ? [1] : [], ...coordinates.values(), ...crosses].flat());
}

/** How many numbers `encode` returns. @param {import("../index.d.ts").Features} features */
export function width(features) {
  const widths = new Map(features.fields.map((field) => [field.name, fieldWidth(field)]));
  const crossed = (features.crosses ?? []).map((pair) => both(pair, widths).reduce((product, each) => product * each));
  return [features.intercept ? 1 : 0, ...widths.values(), ...crossed].reduce((sum, each) => sum + each, 0);
}

/** @param {import("../index.d.ts").Field} field @param {unknown} value @returns {number[]} */
function encodeField(field, value) {
  if (value === undefined) throw new BlindsightError(`the record has no ${field.name}, which the model needs`);
  switch (field.kind) {
    case "number":
      return [scaled(field, value)];
    case "boolean":
      return [truth(field, value)];
    case "category":
      return oneHot(field, place(field, value));
    case "ngrams":
      return presence(field, value);
    default:
      throw new BlindsightError(`this model has a kind of field that this client does not know: use a newer client`);
  }
}

/**
 * The response of one record: 0 or 1, the index of a category, or a number.
 * @param {import("../index.d.ts").Task} task
 * @param {import("../index.d.ts").Example} example
 */
export function respond(task, example) {
  const { response, family } = task;
  const value = held(example, response.name);
  if (value === undefined)
    throw new BlindsightError(`the record has no ${response.name}, which the model learns to predict`);
  if (response.kind === "boolean") return truth(response, value);
  if (response.kind === "number") return family === "poisson" ? clamped(response, value) : scaled(response, value);
  const found = place(response, value);
  if (found < 0) throw new BlindsightError(`${response.name} must be one of ${response.categories.join(", ")}`);
  return found;
}

/** What a record holds by itself: no record has a field `constructor`. @param {any} example @param {string} name */
const held = (example, name) => (Object.hasOwn(example, name) ? example[name] : undefined);

/** How many classes a response has: 0 for a number. @param {import("../index.d.ts").Field} response */
export function classes(response) {
  if (response.kind === "category") return response.categories.length;
  return response.kind === "boolean" ? 2 : 0;
}

/** A number within the range that the server announced. @param {*} field @param {unknown} value */
function clamped(field, value) {
  if (typeof value !== "number" || !Number.isFinite(value)) throw refused(field, "a finite number", value);
  return Math.min(field.high, Math.max(field.low, value));
}

/** The same, scaled to [0, 1]. @param {*} field @param {unknown} value */
const scaled = (field, value) => (clamped(field, value) - field.low) / (field.high - field.low);

/** @param {*} field @param {unknown} value */
function truth(field, value) {
  if (value === true || value === 1) return 1;
  if (value === false || value === 0) return 0;
  throw refused(field, "true or false", value);
}

/** The place of a value among its categories, -1 for one that is not listed. @param {*} field @param {unknown} value */
function place(field, value) {
  if (value === null) return -1;
  if (typeof value !== "string" && !Number.isInteger(value)) throw refused(field, "text or a whole number", value);
  if (typeof value === "number" && !Number.isSafeInteger(value)) return -1; // it may have been rounded
  return field.categories.indexOf(String(value));
}

/** @param {*} field @param {number} found @returns {number[]} */
function oneHot(field, found) {
  const all = new Array(field.categories.length).fill(0);
  if (found >= 0) all[found] = 1;
  return field.drop_first ? all.slice(1) : all;
}

/**
 * 1 in every bucket to which some n-gram of bytes hashes.
 * @param {*} field
 * @param {unknown} value
 * @returns {number[]}
 */
function presence(field, value) {
  if (typeof value !== "string") throw refused(field, "text", value);
  const bytes = encoder.encode(value);
  const found = new Array(field.buckets).fill(0);
  for (const size of field.sizes) {
    for (let start = 0; start + size <= bytes.length; start += 1) {
      found[fnv1a(bytes.subarray(start, start + size)) % field.buckets] = 1;
    }
  }
  return found;
}

/** @param {import("../index.d.ts").Field} field */
function fieldWidth(field) {
  if (field.kind === "category") return field.categories.length - (field.drop_first ? 1 : 0);
  return field.kind === "ngrams" ? field.buckets : 1;
}

/**
 * What belongs to the two fields of a cross.
 * @template T
 * @param {[string, string]} pair
 * @param {Map<string, T>} known
 * @returns {[T, T]}
 */
function both([first, second], known) {
  const [one, other] = [known.get(first), known.get(second)];
  if (one === undefined || other === undefined)
    throw new BlindsightError(`a cross of ${first} and ${second} needs both fields`);
  return [one, other];
}

/** @param {number[]} first @param {number[]} second */
const cross = (first, second) => first.flatMap((one) => second.map((other) => one * other));

/**
 * The error states what was expected, never the value: errors may be logged.
 * @param {*} field
 * @param {string} wanted
 * @param {unknown} value
 */
const refused = (field, wanted, value) =>
  new BlindsightError(`${field.name} must be ${wanted}, got ${value === null ? "nothing" : `a ${typeof value}`}`);
