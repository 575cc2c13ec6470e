import assert from "node:assert/strict";
import { webcrypto } from "node:crypto";
import { test } from "node:test";

import { Budget } from "../src/budget.js";
import { Client, fromBytes, toBytes } from "../src/client.js";
import { examples, task } from "./tasks.js";

const DRAWN = [0.5, -0.25, 0.125];

/** A service of one model in one function, which can be told to fail first. */
function service({ asked = task(), failures = {}, version = asked.version, weights = DRAWN } = {}) {
  const log = [];
  const answers = {
    task: () => Response.json(asked),
    draw: () =>
      new Response(toBytes(Float32Array.from(weights)), {
        headers: { "Blindsight-Ticket": "t1", "Blindsight-Version": version },
      }),
    update: () => Response.json({}, { status: 202 }),
  };
  const fetch = async (address, init) => {
    const path = address.split("/").at(-1);
    log.push({ path, address, ...init });
    const failure = failures[path]?.shift();
    if (failure instanceof Error) throw failure;
    return failure ?? answers[path]();
  };
  return { fetch, log };
}

const refused = (status, cause) => Response.json({ error: "told to", cause }, { status });

function clientOf(stub, options = {}) {
  const waits = [];
  const budget = new Budget({ epsilon: 10, unit: "feature", store: new Map() });
  const wait = async (seconds) => void waits.push(seconds);
  const client = new Client({
    url: "http://service.test/",
    model: "links",
    token: "secret",
    budget,
    fetch: stub.fetch,
    wait,
    ...options,
  });
  return { client, waits, budget };
}

test("a contribution is drawn, paid for, noised and sent with its ticket", async () => {
  const stub = service();
  const { client, budget } = clientOf(stub);
  const { weights, noise } = await client.contribute(examples);
  const [, draw, update] = stub.log;
  assert.deepEqual(
    stub.log.map(({ path }) => path),
    ["task", "draw", "update"],
  );
  assert.equal(draw.address, "http://service.test/v1/models/links/draw");
  assert.equal(update.method, "POST");
  assert.deepEqual(update.headers, {
    "Content-Type": "application/octet-stream",
    "Blindsight-Ticket": "t1",
    "Blindsight-Version": task().version,
    Authorization: "Bearer secret",
  });
  assert.equal(update.credentials, "omit");
  assert.deepEqual(fromBytes(update.body), weights);
  assert.ok(noise.some((steps) => steps !== 0));
  assert.deepEqual(budget.spent, { epsilon: 1, delta: 0 });
  await client.contribute([]);
  assert.equal(stub.log.filter(({ path }) => path === "task").length, 1); // read once
});

test("nothing of the examples leaves but the noised weights", async () => {
  const stub = service();
  await clientOf(stub).client.contribute(examples);
  const bodies = stub.log.filter(({ body }) => body);
  assert.equal(bodies.length, 1);
  assert.equal(bodies[0].body.byteLength, 4 * DRAWN.length);
  assert.ok(
    !JSON.stringify(stub.log.map(({ address, headers }) => [address, headers])).match(/length|https"|200|phishing/),
  );
});

test("the budget is on record before any noise is drawn", async (t) => {
  const { client, budget } = clientOf(service());
  await client.task();
  const spentWhenDrawing = [];
  const real = webcrypto.getRandomValues.bind(webcrypto);
  t.mock.method(webcrypto, "getRandomValues", (words) => {
    spentWhenDrawing.push(budget.spent.epsilon);
    return real(words);
  });
  await client.contribute(examples);
  assert.ok(spentWhenDrawing.length > 0);
  assert.deepEqual([...new Set(spentWhenDrawing)], [1]);
});

test("what was paid for stays paid for when sending fails", async () => {
  const stub = service({ failures: { update: [new Response("", { status: 422 })] } });
  const { client, budget } = clientOf(stub);
  await assert.rejects(client.contribute(examples), { status: 422 });
  assert.equal(budget.spent.epsilon, 1);
});

test("no value of a client keeps it from sending", async () => {
  // a server that leaves a category out would otherwise read it off the silence of those who have it
  const asked = task({
    family: "multinomial",
    weights: 2,
    features: { intercept: true, fields: [] },
    response: { name: "diagnosis", kind: "category", categories: ["flu", "cold"] },
  });
  const thrower = {
    get diagnosis() {
      throw new Error("secret");
    },
  };
  const values = ["flu", "hiv", null, NaN, undefined, {}, 7, true].map((diagnosis) => ({ diagnosis }));
  for (const held of [...values, {}, null, thrower]) {
    const stub = service({ asked, weights: [0, 0] });
    const { client, budget } = clientOf(stub);
    const { weights } = await client.contribute([held]);
    assert.deepEqual(
      stub.log.map(({ path }) => path),
      ["task", "draw", "update"],
    );
    assert.ok(weights.every((weight) => weight !== 0));
    assert.equal(budget.spent.epsilon, 1);
  }
});

test("so many classes that they cannot be arguments change nothing about that", async () => {
  const categories = Array.from({ length: 200_000 }, (_, place) => String(place));
  const response = { name: "y", kind: "category", categories };
  const asked = task({ family: "multinomial", weights: 200_000, features: { intercept: true, fields: [] }, response });
  const stub = service({ asked, weights: new Float32Array(200_000) });
  await clientOf(stub).client.contribute([{ y: "7" }]);
  assert.equal(stub.log.at(-1).path, "update");
});

test("examples are read before the service is asked, and what is no list of them costs nothing", async () => {
  const stub = service();
  const { client, budget } = clientOf(stub);
  await assert.rejects(client.contribute({ length: 50 }), /list of records/);
  assert.deepEqual([stub.log.length, budget.spent.epsilon], [1, 0]);
});

test("a client without a budget says so, and only then answers a task without noise", async () => {
  const options = { url: "http://service.test", model: "links", token: "secret" };
  assert.throws(() => new Client(options), /unprotected: true/);
  assert.throws(() => new Client({ ...options, unprotected: "no" }), /unprotected: true/);
  const bare = task({ noise: { kind: "none", scale: 0, grid: null, bound: null }, epsilon: "inf" });
  const stub = service({ asked: bare });
  for (const epsilon of [1, Infinity]) {
    const budget = new Budget({ epsilon, store: new Map() });
    await assert.rejects(clientOf(stub, { budget }).client.contribute(examples), /has no noise/);
  }
  assert.ok(stub.log.every(({ path }) => path === "task"));
  const { client } = clientOf(stub, { budget: undefined, unprotected: true });
  const { noise } = await client.contribute(examples);
  assert.ok(noise.every((steps) => steps === 0));
});

test("a server cannot have a budget paid back, nor spend beside it under another name", async () => {
  const budget = new Budget({ epsilon: 1, store: new Map() });
  const field = { name: "z", kind: "ngrams", sizes: [1], buckets: -2 };
  const refund = task({ weights: -1, features: { intercept: true, fields: [field] } });
  const honest = task({ unit: "model", norm: 1 });
  const others = ["constructor", "__proto__", "toString"].map((model) => ({ ...honest, model }));
  let arrived = 0;
  for (const asked of [honest, refund, honest, refund, honest, ...others]) {
    const stub = service({ asked });
    await clientOf(stub, { budget }).client.contribute(examples).catch(() => {});
    arrived += stub.log.filter(({ path }) => path === "update").length;
  }
  assert.equal(arrived, 1);
  assert.equal(budget.spent.epsilon, 1);
});

test("weights that are none cost nothing", async () => {
  const stub = service();
  const other = clientOf(service({ asked: task({ weights: 3 }) }), {
    fetch: async (address, init) =>
      address.endsWith("draw")
        ? new Response(toBytes(Float32Array.from([NaN, 0, 0])), { headers: { "Blindsight-Version": task().version } })
        : stub.fetch(address, init),
  });
  await assert.rejects(other.client.contribute(examples), /3 finite weights/);
  assert.equal(other.budget.spent.epsilon, 0);
  assert.ok(!stub.log.some(({ method }) => method === "POST"));
});

test("a spent budget asks the service for nothing", async () => {
  const stub = service({ asked: task({ participations: 1 }) });
  const { client } = clientOf(stub);
  await client.contribute(examples);
  const before = stub.log.length;
  await assert.rejects(client.contribute(examples), { name: "PrivacyError" });
  assert.equal(stub.log.length, before);
});

test("a task that promises too much is refused before anything is drawn or spent", async () => {
  const stub = service({ asked: task({ epsilon: 1, noise: task({ epsilon: 2 }).noise }) });
  const { client, budget } = clientOf(stub);
  await assert.rejects(client.contribute(examples), { name: "PrivacyError" });
  assert.deepEqual([stub.log.length, budget.spent.epsilon], [1, 0]);
});

test("another model's task, or none, is refused", async () => {
  await assert.rejects(clientOf(service({ asked: task({ model: "other" }) })).client.task(), /no task/);
  const broken = service({ failures: { task: [new Response("{")] } });
  await assert.rejects(clientOf(broken).client.task(), { name: "BlindsightError" });
});

test("an answer that breaks off is asked for again", async () => {
  const broken = new Response(new ReadableStream({ start: (stream) => stream.error(new TypeError("lost")) }));
  const { client, waits } = clientOf(service({ failures: { draw: [broken] } }));
  assert.equal((await client.draw()).weights.length, 3);
  assert.equal(waits.length, 1);
});

test("what may pass is tried again, later each time, with the same bytes", async () => {
  const busy = new Response("", { status: 429, headers: { "Retry-After": "3" } });
  const stub = service({ failures: { update: [new TypeError("lost"), busy, new Response("", { status: 503 })] } });
  const { client, waits } = clientOf(stub);
  await client.contribute(examples);
  const sent = stub.log.filter(({ path }) => path === "update").map(({ body }) => fromBytes(body));
  assert.equal(sent.length, 4);
  sent.forEach((body) => assert.deepEqual(body, sent[0])); // fresh noise would cost a second time
  assert.ok(waits[0] >= 0 && waits[0] <= 0.5 && waits[1] >= 3 && waits[1] <= 4 && waits[2] <= 2);
});

test("waits differ from client to client", async () => {
  const waits = [];
  for (let time = 0; time < 8; time += 1) {
    const one = clientOf(service({ failures: { task: [new TypeError("lost")] } }));
    await one.client.task();
    waits.push(...one.waits);
  }
  assert.ok(new Set(waits).size > 4);
});

test("a ticket that is used up on a second try has arrived on the first", async () => {
  const stub = service({ failures: { update: [new TypeError("lost"), refused(410, "ticket_used")] } });
  await clientOf(stub).client.contribute(examples);
  const first = service({ failures: { update: [new Response("", { status: 410 })] } });
  await assert.rejects(clientOf(first).client.contribute(examples), { status: 410 });
});

test("a task that has changed is read anew", async () => {
  const stub = service({ version: "f".repeat(16) });
  const { client, budget } = clientOf(stub);
  await assert.rejects(client.contribute(examples), /has changed/);
  assert.equal(budget.spent.epsilon, 0);
  await assert.rejects(client.contribute(examples));
  assert.equal(stub.log.filter(({ path }) => path === "task").length, 2);
});

test("refusals are one sentence that says what to do, and hold no secret", async () => {
  for (const [status, words] of [
    [401, /token/],
    [404, /no model links/],
    [409, /draw it again/],
    [413, /answered 413/],
  ]) {
    const stub = service({ failures: { task: [new Response("", { status })] } });
    await assert.rejects(clientOf(stub).client.task(), (error) => {
      assert.match(error.message, words);
      assert.ok(!error.message.includes("secret"));
      return error.status === status;
    });
  }
  const stub = service({ failures: { task: Array.from({ length: 5 }, () => new TypeError("lost")) } });
  const { client, waits } = clientOf(stub);
  await assert.rejects(client.task(), /http:\/\/service.test did not answer/);
  assert.equal(waits.length, 4);
});

test("weights travel as little-endian float32", () => {
  assert.deepEqual([...new Uint8Array(toBytes(Float32Array.from([1, -2])))], [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]);
  assert.throws(() => fromBytes(new ArrayBuffer(5)), /broken/);
});

test("a paid update that is refused is reported as lost", async () => {
  for (const [status, cause] of [[401, "token"], [409, "version"], [410, "ticket"]]) {
    const stub = service({ failures: { update: [refused(status, cause)] } });
    const outbox = new Map();
    await assert.rejects(clientOf(stub, { outbox }).client.contribute(examples), {
      name: "UpdateLost",
      status,
      reason: cause,
    });
    assert.equal(await clientOf(stub, { outbox }).client.deliver(), false);
  }
});

test("a paid update waits in the outbox, survives a restart, and is sent as it was", async () => {
  for (const failure of [() => new TypeError("lost"), () => refused(503, "busy"), () => refused(423, "frozen")]) {
    const stub = service({ failures: { update: Array.from({ length: 5 }, failure) } });
    const outbox = new Map();
    await assert.rejects(clientOf(stub, { outbox }).client.contribute(examples), { name: "UpdateWaiting" });
    stub.log.length = 0;
    const again = clientOf(service({ failures: {} }), { outbox }); // the app has started anew
    assert.equal(await again.client.deliver(), true);
    assert.equal(await again.client.deliver(), false);
    assert.deepEqual(again.budget.spent, { epsilon: 0, delta: 0 });
  }
  const stub = service({ failures: { update: [new TypeError("lost"), refused(423, "frozen")] } });
  const outbox = new Map();
  await assert.rejects(clientOf(stub, { outbox }).client.contribute(examples), { name: "UpdateWaiting" });
  await clientOf(stub, { outbox }).client.contribute(examples); // what waits goes first
  const bodies = stub.log.filter(({ path }) => path === "update").map(({ body }) => Buffer.from(body).toString("hex"));
  assert.equal(bodies[0], bodies[1]);
  assert.equal(bodies[1], bodies[2]);
  assert.notEqual(bodies[2], bodies[3]);
});

test("a client waits as long as the service asks, up to a minute", async () => {
  const later = (seconds) => new Response("", { status: 503, headers: { "Retry-After": seconds } });
  const stub = service({ failures: { task: [later("7"), later("99999")] } });
  const { client, waits } = clientOf(stub);
  await client.task();
  assert.ok(waits[0] >= 7 && waits[0] < 8.1 && waits[1] >= 60 && waits[1] < 62);
});

test("draws use tokens of the wallet, and updates their tickets alone", async () => {
  const stub = service({ failures: { draw: [refused(401, "admission_used")] } });
  const tokens = ["one", "two"];
  const wallet = { take: async () => tokens.shift() };
  await clientOf(stub, { wallet, token: undefined }).client.contribute(examples);
  const sent = stub.log.map(({ path, headers }) => [path, headers.Authorization]);
  assert.deepEqual(sent, [
    ["task", undefined],
    ["draw", "PrivateToken token=one"],
    ["draw", "PrivateToken token=two"],
    ["update", undefined],
  ]);
});
