/** Trains a shared model from a browser or from Node; nothing leaves without noise. */

/** One of the client's own records, by field. */
export type Example = Record<string, string | number | boolean | null>;

export type Field =
  | { name: string; kind: "number"; low: number; high: number }
  | { name: string; kind: "boolean" }
  | { name: string; kind: "category"; categories: string[]; drop_first?: boolean }
  | { name: string; kind: "ngrams"; sizes: number[]; buckets: number };

export interface Features {
  intercept: boolean;
  fields: Field[];
  crosses?: [string, string][];
}

export type Noise =
  | { kind: "laplace" | "gaussian"; scale: number; grid: number; bound: number }
  | { kind: "none"; scale: number; grid: null; bound: null };

/** The task that a service gives its clients. */
export interface Task {
  model: string;
  version: string;
  family: "linear" | "logistic" | "multinomial" | "poisson" | "ordinal";
  weights: number;
  features: Features;
  response: Exclude<Field, { kind: "ngrams" }>;
  learning_rate: number;
  clip: number;
  unit: "feature" | "model";
  norm: 1 | 2 | null;
  noise: Noise;
  /** The price of one update. */
  epsilon: number | "inf";
  delta: number;
  instances: number;
  /** Maximum number of updates from one client. */
  participations: number;
}

/** The parts of an update. Only `weights` leaves the client. */
export interface Contribution {
  /** The weights that are sent. */
  weights: Float32Array;
  /** The weights that were drawn. */
  drawn: Float32Array;
  /** The change with its noise, in whole steps of `grid`. */
  noisy: Float64Array;
  /** The change alone. It is the client's data: it stays. */
  change: Float64Array;
  noise: Float64Array;
  grid: number;
}

/** Where a budget is kept: `localStorage` is one. */
export interface Store {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
}

export interface Price {
  epsilon: number;
  delta: number;
}

export interface BudgetOptions {
  epsilon: number;
  delta?: number;
  unit?: "feature" | "model";
  /** Default: `localStorage` in a browser; required elsewhere. A Map lasts as long as the program. */
  store?: Store | Map<string, string>;
}

/** A client's own limit on everything that it ever reveals. */
export class Budget {
  constructor(options: BudgetOptions);
  readonly epsilon: number;
  readonly delta: number;
  readonly unit: "feature" | "model";
  readonly spent: Price;
  sent(model: string): number;
  price(task: Task): Price;
  refusal(task: Task): string | undefined;
  spend(task: Task): Promise<void>;
}

export interface Drawn {
  weights: Float32Array;
  ticket: string;
  version: string;
}

export interface ClientOptions {
  /** Where the service is: `https://example.org`, or "" for the page's own. */
  url: string | URL;
  model: string;
  /** The model's token, unless there is a `wallet`. */
  token?: string;
  /** Admission tokens, where the service wants one for each draw. */
  wallet?: Pick<Wallet, "take">;
  /** Keeps an update that is paid for and not delivered over a restart of the app: `localStorage`, for example. */
  outbox?: Store | Map<string, string>;
  /** Required, unless `unprotected`. */
  budget?: Budget;
  /** Disables both checks: no budget is needed, and a task without noise is answered. */
  unprotected?: boolean;
  attempts?: number;
  timeout_s?: number;
  fetch?: typeof globalThis.fetch;
  wait?: (seconds: number) => Promise<unknown>;
}

export class Client {
  constructor(options: ClientOptions);
  readonly budget?: Budget;
  task(): Promise<Task>;
  draw(): Promise<Drawn>;
  send(drawn: Pick<Drawn, "ticket" | "version">, weights: Float32Array): Promise<void>;
  contribute(examples: Example[]): Promise<Contribution>;
  /** Sends the update that waits in the outbox; returns whether there was one. */
  deliver(): Promise<boolean>;
}

/** An issuer's public keys: its issuer.json. */
export interface Directory {
  issuer: string;
  "token-keys": { "token-type": number; "token-key": string; "not-before": number; "not-after": number }[];
}

/** Admission tokens, each used once. */
export class Wallet {
  constructor(options?: { store?: Store | Map<string, string> });
  ask(directory: Directory, model: string, count: number): Promise<Uint8Array[]>;
  accept(requests: Uint8Array[], responses: Uint8Array[]): Promise<void>;
  take(model: string): Promise<string>;
  count(model: string): number;
}

/** An error whose message says in one sentence what to do. */
export class BlindsightError extends Error {
  readonly status?: number;
  /** The service's word for the cause. */
  readonly reason?: string;
}

/** An update was paid for and will not be accepted, or its fate is unknown. */
export class UpdateLost extends BlindsightError {}

/** An update was paid for and is in the outbox. */
export class UpdateWaiting extends BlindsightError {}

/** Sending would break the privacy guarantee, so nothing was sent. */
export class PrivacyError extends BlindsightError {}

export function checkTask(task: unknown, model?: string): Task;
export function clientUpdate(task: Task, drawn: Float32Array, examples: Example[]): Contribution;
export function encode(features: Features, example: Example): Float64Array;
export function predict(family: Task["family"], weights: ArrayLike<number>, x: ArrayLike<number>): number | number[];
export function discreteLaplace(bits: number, count: number): Float64Array;
export function roundedGaussian(bits: number, count: number): Float64Array;
