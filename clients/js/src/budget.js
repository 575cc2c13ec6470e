/**
 * A client's own budget: a limit on everything it reveals, kept by the client and spent before anything is sent.
 *
 * A crash in between costs budget, never privacy. Prices add up over all models, epsilon and delta alike (basic
 * composition). A budget exists only in its store: clearing a browser's data clears it, and a person's other browsers
 * do not share it.
 */

import { BlindsightError, PrivacyError } from "./errors.js";

const KEY = "blindsight:budget";

/** @typedef {{ count: number, epsilon: number, delta: number }} Sent what one model was sent */
/** @typedef {{ unit: string, models: Map<string, Sent> }} Book a Map: a model may be called `constructor` */

/** A limit on all updates that a client sends, to all models. */
export class Budget {
  #store;

  /**
   * With unit "model" all data of the client in all weights count: an update whose noise is by feature then costs as
   * many epsilons as it has weights. With unit "feature", the paper's, it costs one.
   * @param {import("../index.d.ts").BudgetOptions} options
   */
  constructor({ epsilon, delta = 0, unit = "model", store }) {
    if (!(epsilon > 0 && delta >= 0 && delta < 1) || !["feature", "model"].includes(unit)) {
      const given = `${epsilon}, ${delta}, ${unit}`;
      throw new BlindsightError(`a budget needs epsilon > 0, delta in [0, 1) and a unit, got ${given}`);
    }
    this.epsilon = epsilon;
    this.delta = delta;
    this.unit = unit;
    this.#store = asStore(store);
    const kept = this.#read().unit;
    if (kept !== unit)
      throw new BlindsightError(`the budget in this store is counted by ${kept}: open it with unit "${kept}"`);
  }

  /** Epsilon and delta of everything sent so far. */
  get spent() {
    return total(this.#read());
  }

  /** How many updates a model was sent. @param {string} model */
  sent(model) {
    return this.#read().models.get(model)?.count ?? 0;
  }

  /**
   * What one update for a task costs, in this budget's unit: never nothing, and never less.
   * @param {import("../index.d.ts").Task} task
   */
  price({ model, unit, weights, epsilon, delta }) {
    const times = this.unit === "model" && unit === "feature" ? weights : 1;
    const isWorth = typeof epsilon === "number" && epsilon > 0 && typeof delta === "number" && delta >= 0;
    const price = { epsilon: Number(epsilon) * times, delta: delta * times };
    if (!isWorth || !(times >= 1) || !Number.isFinite(price.epsilon) || !Number.isFinite(price.delta))
      throw new PrivacyError(`an update for ${model} has an invalid price: nothing is sent`);
    return price;
  }

  /**
   * The sentence that says why no more is sent, or undefined where it may be.
   * @param {import("../index.d.ts").Task} task
   */
  refusal(task) {
    const sent = this.sent(task.model);
    if (!(sent < task.participations)) {
      return `${task.model} was sent ${sent} updates and may have ${task.participations}: nothing more is sent`;
    }
    if (task.epsilon === "inf") return `an update for ${task.model} has no noise and any price: nothing is sent`;
    const [price, spent] = [this.price(task), this.spent];
    if (fits(spent.epsilon + price.epsilon, this.epsilon) && fits(spent.delta + price.delta, this.delta))
      return undefined;
    return (
      `an update for ${task.model} costs (${short(price.epsilon)}, ${short(price.delta)}) by ${this.unit} and ` +
      `(${short(spent.epsilon)}, ${short(spent.delta)}) of (${short(this.epsilon)}, ${short(this.delta)}) are spent: ` +
      "nothing is sent"
    );
  }

  /**
   * Writes down one update for a task, or refuses it with nothing written.
   * @param {import("../index.d.ts").Task} task
   */
  async spend(task) {
    await alone(() => {
      const refusal = this.refusal(task);
      if (refusal) throw new PrivacyError(refusal);
      const book = this.#read();
      const before = book.models.get(task.model) ?? { count: 0, epsilon: 0, delta: 0 };
      const price = this.price(task);
      const after = {
        count: before.count + 1,
        epsilon: before.epsilon + price.epsilon,
        delta: before.delta + price.delta,
      };
      book.models.set(task.model, after);
      this.#write(JSON.stringify({ unit: book.unit, models: Object.fromEntries(book.models) }));
    });
  }

  /** @returns {Book} */
  #read() {
    const text = this.#store.getItem(KEY);
    if (text === null) return { unit: this.unit, models: new Map() };
    try {
      const { unit, models } = JSON.parse(text);
      const book = { unit, models: new Map(Object.entries(models)) };
      const amounts = [...book.models.values()].flatMap(({ count, epsilon, delta }) => [count, epsilon, delta]);
      if (typeof unit === "string" && amounts.every((value) => typeof value === "number" && value >= 0)) return book;
    } catch {
      // handled below: an unreadable record does not mean that nothing was spent
    }
    throw new PrivacyError("the record of what was spent cannot be read: nothing is sent, so nothing is spent twice");
  }

  /** @param {string} record */
  #write(record) {
    try {
      this.#store.setItem(KEY, record);
    } catch (cause) {
      throw new PrivacyError("the spending cannot be stored here: nothing is sent", { cause });
    }
    if (this.#store.getItem(KEY) !== record) {
      throw new PrivacyError("the store did not keep the spending: nothing is sent");
    }
  }
}

/** @param {Book} book */
function total({ models }) {
  const sum = (/** @type {"epsilon" | "delta"} */ name) =>
    [...models.values()].reduce((all, sent) => all + sent[name], 0);
  return { epsilon: sum("epsilon"), delta: sum("delta") };
}

/** @param {number} spent @param {number} limit */
const fits = (spent, limit) => spent <= limit * (1 + 1e-12); // ten times 0.1 is 1

/** One at a time, over all tabs of a browser or threads of a program, where there are locks. @param {() => void} act */
export async function alone(act) {
  const locks = globalThis.navigator?.locks;
  await (locks ? locks.request(KEY, async () => act()) : act()); // async: Node 24 keeps the lock if this throws at once
}

/** @param {import("../index.d.ts").Store | Map<string, string>} [store] @returns {import("../index.d.ts").Store} */
export function asStore(store = browserStore()) {
  if (!(store instanceof Map)) return store;
  return { getItem: (key) => store.get(key) ?? null, setItem: (key, value) => void store.set(key, value) };
}

/** @returns {import("../index.d.ts").Store} */
function browserStore() {
  try {
    if (typeof window !== "undefined" && window.localStorage) return window.localStorage;
  } catch {
    // a browser may forbid it
  }
  throw new BlindsightError(
    "say where it is kept: fileStore(path) of @blindsight/client/node, or a Map for this run only",
  );
}

/** @param {number} value */
const short = (value) => Number(value.toPrecision(4));
