import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { Budget } from "../src/budget.js";
import { fileStore } from "../src/node.js";
import { gaussianTask, task } from "./tasks.js";

test("prices add up over models, and what does not fit is refused with nothing written", async () => {
  const store = new Map();
  const budget = new Budget({ epsilon: 2.5, unit: "feature", store });
  await budget.spend(task());
  await budget.spend(task({ model: "other" }));
  assert.deepEqual(budget.spent, { epsilon: 2, delta: 0 });
  const before = [...store];
  await assert.rejects(budget.spend(task()), {
    name: "PrivacyError",
    message: /\(2, 0\) of \(2.5, 0\) are spent: nothing is sent/,
  });
  assert.deepEqual([...store], before);
  await budget.spend(task({ epsilon: 0.5 })); // to the brim
});

test("by model, an update whose noise is by feature costs as many epsilons as it has weights", async () => {
  const budget = new Budget({ epsilon: 5, store: new Map() });
  assert.deepEqual(budget.price(task()), { epsilon: 3, delta: 0 });
  await budget.spend(task());
  assert.match(budget.refusal(task()), /costs \(3, 0\) by model/);
});

test("delta is kept to as well", async () => {
  const budget = new Budget({ epsilon: 100, delta: 2e-6, store: new Map() });
  await budget.spend(gaussianTask());
  await budget.spend(gaussianTask());
  await assert.rejects(budget.spend(gaussianTask()), { name: "PrivacyError" });
});

test("ten times a tenth is one", async () => {
  const budget = new Budget({ epsilon: 1, unit: "feature", store: new Map() });
  for (let time = 0; time < 10; time += 1) await budget.spend(task({ epsilon: 0.1 }));
  await assert.rejects(budget.spend(task({ epsilon: 0.1 })));
});

test("a new version of a model does not start anew", async () => {
  const budget = new Budget({ epsilon: 100, unit: "feature", store: new Map() });
  await budget.spend(task({ participations: 1 }));
  await assert.rejects(budget.spend(task({ participations: 1, version: "f".repeat(16) })), /1 updates and may have 1/);
  assert.equal(budget.sent("links"), 1);
});

test("a task without noise is beyond any budget", () => {
  const budget = new Budget({ epsilon: 1e9, store: new Map() });
  assert.match(budget.refusal(task({ epsilon: "inf" })), /nothing is sent/);
});

test("a price is finite and more than nothing, or there is none", async () => {
  const store = new Map();
  const budget = new Budget({ epsilon: 10, store });
  const prices = [NaN, 0, -1, Infinity, "1", undefined, null].map((epsilon) => ({ ...task(), epsilon }));
  const weights = [-1, 0, NaN, 0.5, Infinity, undefined, "x"].map((count) => ({ ...task(), weights: count }));
  const deltas = [-1, NaN, Infinity, undefined].map((delta) => ({ ...task(), delta }));
  for (const bad of [...prices, ...weights, ...deltas]) {
    assert.throws(() => budget.price(bad), { name: "PrivacyError" }, JSON.stringify(bad));
    await assert.rejects(budget.spend(bad), { name: "PrivacyError" });
  }
  await assert.rejects(budget.spend({ ...task(), participations: NaN }), { name: "PrivacyError" });
  assert.equal(store.size, 0);
});

test("a model may have any name, and what it was sent is counted", async () => {
  for (const model of ["constructor", "__proto__", "toString", "hasOwnProperty"]) {
    const store = new Map();
    const budget = new Budget({ epsilon: 10, unit: "feature", store });
    assert.equal(budget.sent(model), 0);
    await budget.spend(task({ model, participations: 1 }));
    assert.deepEqual([budget.sent(model), budget.spent.epsilon], [1, 1]);
    await assert.rejects(budget.spend(task({ model, participations: 1 })), /1 updates and may have 1/);
    await budget.spend(task({ model: "links" }));
    assert.equal(budget.spent.epsilon, 2);
  }
});

test("amounts that are no numbers are not read as numbers", () => {
  for (const epsilon of [[], "0", null, -1, { valueOf: 0 }]) {
    const models = { links: { count: 1, epsilon, delta: 0 } };
    const store = new Map([["blindsight:budget", JSON.stringify({ unit: "model", models })]]);
    assert.throws(() => new Budget({ epsilon: 1, store }), /cannot be read/, JSON.stringify(epsilon));
  }
});

test("a file keeps it between programs, and an unreadable record does not count as empty", async () => {
  const folder = mkdtempSync(join(tmpdir(), "blindsight-"));
  const path = join(folder, "budget.json");
  try {
    await new Budget({ epsilon: 1, unit: "feature", store: fileStore(path) }).spend(task());
    const again = new Budget({ epsilon: 1, unit: "feature", store: fileStore(path) });
    assert.equal(again.spent.epsilon, 1);
    await assert.rejects(again.spend(task()), { name: "PrivacyError" });
    assert.throws(() => new Budget({ epsilon: 1, store: fileStore(path) }), /counted by feature/);
    writeFileSync(path, readFileSync(path, "utf8").replace("epsilon", "epsilom"));
    assert.throws(() => again.spent, /cannot be read/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("where nothing can be stored nothing is spent", async () => {
  const full = {
    getItem: () => null,
    setItem: () => {
      throw new Error("full");
    },
  };
  await assert.rejects(new Budget({ epsilon: 9, store: full }).spend(task()), /cannot be stored here/);
  const forgetful = { getItem: () => null, setItem: () => {} };
  await assert.rejects(new Budget({ epsilon: 9, store: forgetful }).spend(task()), /did not keep the spending/);
});

test("a budget says where it is kept and how large it is", () => {
  assert.throws(() => new Budget({ epsilon: 1 }), /fileStore/); // no browser here
  for (const bad of [{}, { epsilon: 0 }, { epsilon: NaN }, { epsilon: 1, delta: 1 }, { epsilon: 1, unit: "row" }]) {
    assert.throws(() => new Budget({ ...bad, store: new Map() }), /a budget needs/);
  }
});
