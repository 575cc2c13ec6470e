/** Draw a model, move it by a noised step, send it back: over fetch, with patience. */

import { asStore } from "./budget.js";
import { BlindsightError, PrivacyError, UpdateLost, UpdateWaiting } from "./errors.js";
import { readable } from "./features.js";
import { checkTask } from "./task.js";
import { noised, slope } from "./update.js";
import { fromText, toText } from "./wallet.js";

const ATTEMPTS = 5;
const FIRST_WAIT_S = 0.5;
const LONGEST_WAIT_S = 20;
const MOST_OBEYED_S = 60; // of a Retry-After
const FROZEN = 423;
const TIMEOUT_S = 30;
const WORTH_ANOTHER_TRY = [408, 425, 429, 500, 502, 503, 504];

/** One model of one service, as a client that trusts neither with its data. */
export class Client {
  #root;
  #model;
  #token;
  #fetch;
  #wait;
  #attempts;
  #timeout;
  #unprotected;
  #wallet;
  #outbox;
  /** @type {import("../index.d.ts").Task | undefined} */
  #task;

  /** @param {import("../index.d.ts").ClientOptions} options */
  constructor({ url, model, token, budget, unprotected = false, wallet, outbox, fetch, wait = pause, ...patience }) {
    const { attempts = ATTEMPTS, timeout_s = TIMEOUT_S } = patience;
    if (!budget && unprotected !== true)
      throw new BlindsightError("a client needs its own budget: pass one, or unprotected: true to go without");
    this.budget = budget;
    this.#unprotected = unprotected === true;
    this.#wallet = wallet;
    this.#outbox = outbox && asStore(outbox);
    this.#root = `${String(url).replace(/\/+$/, "")}/v1/models/${encodeURIComponent(model)}`;
    this.#model = model;
    this.#token = token;
    this.#wait = wait;
    this.#attempts = attempts;
    this.#timeout = timeout_s * 1000;
    this.#fetch =
      fetch ?? ((/** @type {string} */ address, /** @type {RequestInit} */ init) => globalThis.fetch(address, init));
  }

  /** What the service asks of its clients, checked: the noise is no less than what it promises. */
  async task() {
    this.#task ??= checkTask(parsed((await this.#ask("GET", "task")).bytes), this.#model);
    return this.#task;
  }

  /** One instance of the model, and a ticket to send it back with. */
  async draw() {
    const { answer, bytes } = await this.#admitted();
    return {
      weights: fromBytes(bytes),
      ticket: answer.headers.get("Blindsight-Ticket") ?? "",
      version: answer.headers.get("Blindsight-Version") ?? "",
    };
  }

  /**
   * Sends weights in place of those drawn. Trying again sends the same bytes with the same ticket, which counts once.
   * @param {{ ticket: string, version: string }} drawn
   * @param {Float32Array} weights
   */
  async send(drawn, weights) {
    const { ticket, version } = drawn;
    const body = toBytes(weights);
    this.#outbox?.setItem(this.#box, JSON.stringify({ ticket, version, body: toText(new Uint8Array(body)) }));
    await this.#deliver({ ticket, version, body }, false);
  }

  /** Sends the update that waits in the outbox; returns whether there was one. */
  async deliver() {
    const kept = this.#outbox?.getItem(this.#box);
    if (!kept) return false;
    const { ticket, version, body } = JSON.parse(kept);
    await this.#deliver({ ticket, version, body: fromText(body).buffer }, true);
    return true;
  }

  get #box() {
    return `blindsight:outbox:${this.#model}`;
  }

  /** @param {{ ticket: string, version: string, body: ArrayBuffer }} unsent @param {boolean} isRepeated */
  async #deliver({ ticket, version, body }, isRepeated) {
    const headers = {
      "Content-Type": "application/octet-stream",
      "Blindsight-Ticket": ticket,
      "Blindsight-Version": version,
    };
    try {
      await this.#ask("POST", "update", { headers, body, isRepeated });
    } catch (error) {
      const { message, status, reason } = /** @type {BlindsightError} */ (error);
      const mayPass = status === undefined || status === FROZEN || WORTH_ANOTHER_TRY.includes(status);
      if (this.#outbox && mayPass)
        throw new UpdateWaiting(`the update is in the outbox: ${message}`, { status, reason, cause: error });
      this.#outbox?.setItem(this.#box, "");
      const lost = `an update for ${this.#model} that was paid for is lost, or its answer is: ${message}`;
      throw new UpdateLost(lost, { status, reason, cause: error });
    }
    this.#outbox?.setItem(this.#box, "");
  }

  /** A draw, with an admission token if there is a wallet; one that counts as used is replaced. */
  async #admitted() {
    while (this.#wallet) {
      const headers = { Authorization: `PrivateToken token=${await this.#wallet.take(this.#model)}` };
      try {
        return await this.#ask("GET", "draw", { headers });
      } catch (error) {
        if (/** @type {BlindsightError} */ (error).reason !== "admission_used") throw error;
      }
    }
    return this.#ask("GET", "draw");
  }

  /**
   * Trains the model on the client's own examples, once. They stay here: what is sent is one step, clipped and noised.
   *
   * Whether it is sent does not depend on what the examples hold: those that cannot be encoded count as absent. The
   * budget is charged before any noise is drawn. Whatever fails after that stays paid for: nobody can tell from here
   * whether the update arrived.
   * @param {import("../index.d.ts").Example[]} examples none is fine, and looks like any other update
   * @returns {Promise<import("../index.d.ts").Contribution>}
   */
  async contribute(examples) {
    const task = await this.task();
    if (task.noise.kind === "none" && !this.#unprotected)
      throw new PrivacyError(`the task of ${task.model} has no noise: nothing is sent without unprotected: true`);
    const refusal = this.budget?.refusal(task);
    if (refusal) throw new PrivacyError(refusal); // before any request to the service
    await this.deliver(); // an update that an earlier contribution left
    const encoded = readable(task, examples); // now: a page may change them while the service is asked
    const drawn = await this.draw();
    if (drawn.version !== task.version) {
      this.#task = undefined;
      throw new BlindsightError("the model's task has changed: try again with the new task");
    }
    const direction = slope(task, drawn.weights, encoded);
    await this.budget?.spend(task);
    const update = noised(task, direction, drawn.weights);
    await this.send(drawn, update.weights);
    return update;
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {{ headers?: Record<string, string>, body?: ArrayBuffer, isRepeated?: boolean }} [message]
   * @returns {Promise<{ answer: Response, bytes: ArrayBuffer }>}
   */
  async #ask(method, path, { headers = {}, body, isRepeated = false } = {}) {
    for (let attempt = 1; ; attempt += 1) {
      const { answer, bytes, cause } = await this.#once(method, path, headers, body);
      const reason = answer && !answer.ok ? reasonIn(bytes) : undefined;
      const arrived = reason === "ticket_used" && (isRepeated || attempt > 1); // an earlier try, after all
      if (answer && (answer.ok || arrived)) return { answer, bytes };
      if (answer && !WORTH_ANOTHER_TRY.includes(answer.status)) throw this.#refusal(answer, reason);
      if (attempt >= this.#attempts) throw answer ? this.#refusal(answer, reason) : this.#silence(cause);
      await this.#wait(waitFor(attempt, answer));
    }
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {Record<string, string>} headers
   * @param {ArrayBuffer} [body]
   * @returns {Promise<{ answer?: Response, bytes: ArrayBuffer, cause?: unknown }>}
   */
  async #once(method, path, headers, body) {
    /** @type {RequestInit} */
    const request = {
      method,
      body,
      headers: this.#wallet ? headers : { ...headers, Authorization: `Bearer ${this.#token}` },
      signal: AbortSignal.timeout(this.#timeout),
      credentials: "omit", // no cookie, no referrer, no cache: only what is written here is sent
      referrerPolicy: "no-referrer",
      cache: "no-store",
    };
    try {
      const answer = await this.#fetch(`${this.#root}/${path}`, request);
      return { answer, bytes: await answer.arrayBuffer() };
    } catch (cause) {
      return { bytes: new ArrayBuffer(0), cause };
    }
  }

  /** @param {Response} answer @param {string} [reason] */
  #refusal({ status }, reason) {
    const model = this.#model;
    const sentences = /** @type {Record<number, string>} */ ({
      401: `the service does not accept this token for ${model}: ask its owner for the model's token`,
      403: `the service does not accept this token for ${model}: ask its owner for the model's token`,
      404: `the service has no model ${model}: check the name and the address`,
      409: `${model} has changed since it was drawn: draw it again`,
      410: `the ticket of this draw has expired or was used: draw ${model} again`,
      423: `${model} is frozen: there is nothing to train`,
      429: `the service is asked too often for ${model}: try again later`,
    });
    return new BlindsightError(
      sentences[status] ?? `the service answered ${status}: try again later or ask its owner`,
      { status, reason },
    );
  }

  /** @param {unknown} cause */
  #silence(cause) {
    const address = new URL(this.#root, globalThis.location?.href).origin;
    return new BlindsightError(`${address} did not answer: check the address and the connection`, { cause });
  }
}

/** Seconds until the next attempt: a random part of a wait that doubles, or what the service asks for. */
function waitFor(/** @type {number} */ attempt, /** @type {Response | undefined} */ answer) {
  const asked = Number(answer?.headers.get("Retry-After") ?? 0) || 0;
  const doubled = Math.min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (attempt - 1));
  return Math.min(asked, MOST_OBEYED_S) + Math.random() * doubled; // jitter only: it need not be secret
}

const pause = (/** @type {number} */ seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

/** The service's word for a refusal. @param {ArrayBuffer} bytes @returns {string | undefined} */
function reasonIn(bytes) {
  const { cause } = /** @type {{ cause?: string }} */ (parsed(bytes) ?? {});
  return cause;
}

/** The JSON in some bytes, or nothing. @param {ArrayBuffer} bytes @returns {unknown} */
function parsed(bytes) {
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    return undefined;
  }
}

/** Little-endian float32, on any machine. @param {ArrayBuffer} buffer */
export function fromBytes(buffer) {
  if (buffer.byteLength % 4) throw new BlindsightError("the service sent a broken model: draw it again");
  const view = new DataView(buffer);
  return Float32Array.from({ length: buffer.byteLength / 4 }, (_, index) => view.getFloat32(4 * index, true));
}

/** @param {Float32Array} weights */
export function toBytes(weights) {
  const view = new DataView(new ArrayBuffer(4 * weights.length));
  weights.forEach((weight, index) => view.setFloat32(4 * index, weight, true));
  return view.buffer;
}
