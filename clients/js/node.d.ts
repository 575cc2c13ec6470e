import type { Store } from "./index.js";

/** A JSON file, replaced as a whole and on the disk before `setItem` returns. One process at a time may use it. */
export function fileStore(path: string): Store;
