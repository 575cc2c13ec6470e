"use strict";
const by = (id) => document.getElementById(id);
const percent = (share) => share === null ? "–" : `${Number((100 * share).toPrecision(3))} %`;
let state = null, shown = null, since = 0, pending = false, waiting = null;

const anti = by("csrf") ? {"X-CSRF-Token": by("csrf").dataset.token} : {};  // inside the studio

function make(tag, text, kind) {
  const one = document.createElement(tag);
  if (text !== undefined) one.textContent = text;
  if (kind) one.className = kind;
  return one;
}

// --- what the server knows is what is shown; nothing moves on before it is saved

async function ask(path, said) {
  if (pending) return false;  // what is typed before the next example is shown is not meant for it
  pending = true;
  try {
    const options = said === undefined ? {} : {method: "POST", headers: {"Content-Type": "application/json", ...anti}, body: JSON.stringify(said)};
    const answer = await fetch(path, options);
    if (answer.status === 404) throw new Error("This address has expired: open the one that blindsight label printed last.");
    const found = await answer.json();
    if (found.classes) { state = found; render(); }
    trouble(found.error ? `Not saved: ${found.error}` : "");
    return answer.ok;
  } catch (error) {
    const lost = error instanceof TypeError;  // what fetch throws where nobody answers
    trouble(lost ? "Not saved: the server has stopped. Earlier labels are safe. Start blindsight label again and open the address it prints." : error.message);
    return false;
  } finally {
    pending = false;
    document.body.dataset.ready = String(Number(document.body.dataset.ready ?? 0) + 1);
  }
}

function trouble(text) { by("trouble").textContent = text; by("trouble").hidden = !text; }

async function label(name) {
  if (!state?.sample) return;
  const seconds = (performance.now() - since) / 1000;
  if (await ask("label", {sample_id: state.sample.id, label: name, seconds})) {
    by("said").textContent = name === null ? "Skipped." : `Labelled ${name}.`;
  }
}

async function undo() {
  if (state.labelled + state.skipped && await ask("undo", {})) by("said").textContent = "Last label taken back.";
}

const skip = () => label(null);
const accept = () => { if (state?.sample?.proposed != null) label(state.sample.proposed); };

// --- the page

function render() {
  const done = state.labelled + state.skipped, sample = state.sample;
  by("title").textContent = state.title;
  by("guarantee").textContent = state.guarantee;
  by("explained").textContent = state.explained;
  by("privacy").classList.toggle("none", !state.is_private);
  by("rater").textContent = state.rater;
  by("instructions").hidden = !state.instructions;
  by("instructed").textContent = state.instructions;
  by("where").textContent = `${done} of ${state.total}${state.skipped ? `, ${state.skipped} skipped` : ""}`;
  by("progress").max = state.total;
  by("progress").value = done;
  by("work").hidden = !sample;
  by("done").hidden = Boolean(sample);
  by("undo-key").textContent = state.keys.undo;
  by("skip-key").textContent = state.keys.skip;
  renderClasses();
  renderKeys();
  if (sample) renderSample(sample); else renderDone();
}

function renderSample(sample) {
  by("propose").hidden = sample.proposed == null;
  by("proposer").textContent = `Proposed by ${sample.proposer}`;
  by("proposed").textContent = sample.proposed ?? "";
  by("score").textContent = sample.score == null ? "" : percent(sample.score);
  if (shown === sample.id) return;
  shown = sample.id;
  since = performance.now();
  const parts = [];
  if (sample.picture) {
    const picture = make("img");
    picture.src = sample.picture;
    picture.alt = `synthetic example ${sample.id}`;
    parts.push(picture);
  } else {
    parts.push(make("span", "synthetic", "stamp"));
    const fields = Object.entries(sample.row ?? {});
    if (fields.length === 1) parts.push(make("p", fields[0][1], "text"));
    else {
      const table = make("table");
      for (const [field, value] of fields) {
        const row = make("tr"), head = make("th", field);
        head.scope = "row";
        row.append(head, make("td", value));
        table.append(row);
      }
      parts.push(table);
    }
  }
  by("example").replaceChildren(...parts);
}

function renderClasses() {
  by("classes").classList.toggle("many", state.classes.length > 24);
  by("classes").replaceChildren(...state.classes.map((name) => {
    const one = make("button", undefined, name === state.sample?.proposed ? "proposed" : ""), key = state.keys.classes[name];
    one.append(make("span", name));
    if (key) { one.append(make("kbd", key)); one.setAttribute("aria-keyshortcuts", key); }
    one.dataset.name = name;
    one.onclick = () => { one.blur(); label(name); };
    return one;
  }));
}

function sheet(heads, rows) {
  const table = make("table"), head = make("tr");
  heads.forEach((text, place) => { const one = make("th", text, place ? "number" : ""); one.scope = "col"; head.append(one); });
  const lines = rows.map((cells) => { const row = make("tr"); cells.forEach((text, place) => row.append(make("td", text, place ? "number" : ""))); return row; });
  table.append(head, ...lines);
  return table;
}

function renderDone() {
  shown = null;
  const found = state.agreement, kappa = (value) => value === null ? "–" : value.toFixed(3);
  by("finished").textContent = `All ${state.total} done: ${state.labelled} labelled, ${state.skipped} skipped.`;
  const parts = [make("h2", "Your labels"), sheet(["class", "labels"], Object.entries(state.counts).filter(([, count]) => count).map(([name, count]) => [name, String(count)]))];
  parts.push(make("h2", "Agreement"));
  if (found.raters.length < 2) parts.push(make("p", "Agreement needs a second rater: blindsight label FOLDER --rater NAME", "note"));
  else {
    parts.push(sheet(["raters", "both labelled", "same label", "Cohen’s kappa"], found.pairs.map((pair) => [pair.raters.join(" and "), String(pair.samples), percent(pair.same), kappa(pair.kappa)])));
    if (found.raters.length > 2) parts.push(make("p", `Fleiss’ kappa of all on ${found.everybody} samples: ${kappa(found.fleiss)}`));
  }
  by("summary").replaceChildren(...parts);
}

// --- keys

const slots = () => [...state.classes.map((name) => [name, state.keys.classes[name], name]), ["Skip", state.keys.skip, "/skip"], ["Undo", state.keys.undo, "/undo"]];

function renderKeys() {
  const focused = document.activeElement?.dataset?.slot;
  by("key-list").replaceChildren(...slots().map(([text, key, slot]) => {
    const item = make("li"), one = make("button", undefined, slot === waiting ? "waiting" : "");
    one.append(make("span", text), make("kbd", slot === waiting ? "press a key" : key || "none"));
    one.dataset.slot = slot;
    one.onclick = () => { waiting = slot; renderKeys(); };
    item.append(one);
    return item;
  }));
  if (focused) [...by("key-list").querySelectorAll("button")].find((one) => one.dataset.slot === focused)?.focus();
}

async function remap(slot, key) {
  const keys = {classes: {...state.keys.classes}, skip: state.keys.skip, undo: state.keys.undo};
  const read = (one) => one === "/skip" ? keys.skip : one === "/undo" ? keys.undo : keys.classes[one];
  const write = (one, value) => { if (one === "/skip") keys.skip = value; else if (one === "/undo") keys.undo = value; else keys.classes[one] = value; };
  const holder = slots().find(([, held]) => held === key)?.[2], before = read(slot);
  if (holder && holder !== slot) write(holder, before);
  write(slot, key);
  waiting = null;
  await ask("keys", {keys});
  renderKeys();
}

function action(key) {
  const all = slots();
  // Caps Lock must not make every key a stranger, unless both cases mean something
  const found = [key, key.toLowerCase(), key.toUpperCase()].map((one) => all.find(([, held]) => held === one)).find(Boolean);
  return found?.[2];
}

document.addEventListener("keydown", (event) => {
  if (!state || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (by("keys").open) {
    if (waiting !== null && event.key.length === 1) {
      event.preventDefault();
      if (event.key === " " || event.key === "?") trouble("Space and ? cannot be assigned.");
      else remap(waiting, event.key);
    }
    return;
  }
  if (event.repeat) return;  // a key that is held down is one answer
  const onButton = event.target.closest?.("button, summary");
  if (event.key === "Enter") { if (!onButton) { event.preventDefault(); accept(); } return; }
  if (event.key === "Backspace") { event.preventDefault(); undo(); return; }
  if (event.key === "?") { event.preventDefault(); openKeys(); return; }
  if (event.key.length !== 1 || event.key === " ") return;
  const slot = action(event.key);
  if (slot === undefined) { by("said").textContent = `No action on ${event.key}; ? lists the keys.`; return; }
  event.preventDefault();
  if (slot === "/skip") skip(); else if (slot === "/undo") undo(); else label(slot);
});

function openKeys() { waiting = null; renderKeys(); by("keys").showModal(); }
by("keys").addEventListener("close", () => { waiting = null; });
by("accept").onclick = () => { by("accept").blur(); accept(); };
by("undo").onclick = () => { by("undo").blur(); undo(); };
by("skip").onclick = () => { by("skip").blur(); skip(); };
by("help").onclick = () => { by("help").blur(); openKeys(); };
by("close").onclick = () => by("keys").close();
ask("state");
