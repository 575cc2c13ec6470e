/** Where a client outside a browser keeps its budget. */

import { closeSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } from "node:fs";
import { dirname } from "node:path";

/**
 * A JSON file, replaced as a whole and on the disk before `setItem` returns. One process at a time may use it.
 * @param {string} path
 * @returns {import("../index.d.ts").Store}
 */
export function fileStore(path) {
  return {
    getItem: (key) => read(path)[key] ?? null,
    setItem: (key, value) => replace(path, JSON.stringify({ ...read(path), [key]: value })),
  };
}

/** @param {string} path @returns {Record<string, string>} */
function read(path) {
  try {
    return JSON.parse(readFileSync(path, "utf8"));
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code === "ENOENT") return {};
    throw error;
  }
}

/** @param {string} path @param {string} text */
function replace(path, text) {
  const beside = `${path}.new`;
  onDisk(beside, "w", (file) => writeSync(file, text));
  renameSync(beside, path);
  if (process.platform !== "win32") onDisk(dirname(path), "r", () => {}); // the new name too
}

/** @param {string} path @param {string} mode @param {(file: number) => unknown} act */
function onDisk(path, mode, act) {
  const file = openSync(path, mode, 0o600);
  try {
    act(file);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}
