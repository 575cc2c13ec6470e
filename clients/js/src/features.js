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
 * The numbers of one record.
 * @param {import("../index.d.ts").Features} features
 * @param {import("../index.d.ts").Example} example
 * @returns {Float64Array}
 */
export function encode(features, example) {
  const coordinates = new Map(features.fields.map((field) => [field.name, encodeField(field, example[field.name])]));
  const crosses = (features.crosses ?? []).map(([first, second]) => cross(coordinates.get(first), coordinates.get(second)));
  return Float64Array.from([features.intercept ? [1] : [], ...coordinates.values(), ...crosses].flat());
}

/** How many numbers `encode` returns. @param {import("../index.d.ts").Features} features */
export function width(features) {
  const widths = new Map(features.fields.map((field) => [field.name, fieldWidth(field)]));
  const crossed = (features.crosses ?? []).map(([first, second]) => widths.get(first) * widths.get(second));
  return [features.intercept ? 1 : 0, ...widths.values(), ...crossed].reduce((sum, each) => sum + each, 0);
}

/** @param {import("../index.d.ts").Field} field @param {unknown} value @returns {number[]} */
function encodeField(field, value) {
  if (value === undefined || value === null) throw new BlindsightError(`the record has no ${field.name}: the model needs it`);
  switch (field.kind) {
    case "number":
      return [scaled(field, value)];
    case "boolean":
      return [truth(field, value)];
    case "category":
      return (field.drop_first ? field.categories.slice(1) : field.categories).map((one) => (one === value ? 1 : 0));
    case "ngrams":
      return presence(field, value);
    default:
      throw new BlindsightError(`this client cannot read fields of kind ${field.kind} (${field.name}): use a newer one`);
  }
}

/** A number scaled to [0, 1] by the range that the server announced. @param {*} field @param {unknown} value */
export function scaled(field, value) {
  if (typeof value !== "number" || !Number.isFinite(value)) {
    throw new BlindsightError(`${field.name} must be a finite number, got ${describe(value)}`);
  }
  return Math.min(1, Math.max(0, (value - field.low) / (field.high - field.low)));
}

/** @param {*} field @param {unknown} value */
export function truth(field, value) {
  if (value === true || value === 1) return 1;
  if (value === false || value === 0) return 0;
  throw new BlindsightError(`${field.name} must be true or false, got ${describe(value)}`);
}

/** 1 for every bucket into which some run of bytes falls. @param {*} field @param {unknown} value @returns {number[]} */
function presence(field, value) {
  if (typeof value !== "string") throw new BlindsightError(`${field.name} must be text, got ${describe(value)}`);
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

/** @param {number[]} first @param {number[]} second */
const cross = (first, second) => first.flatMap((one) => second.map((other) => one * other));

/** What was given, without what it says: errors may be logged. @param {unknown} value */
const describe = (value) => (value === null ? "null" : typeof value === "number" ? "a number that is not finite" : `a ${typeof value}`);
