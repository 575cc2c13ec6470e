"use strict";
// The table of findings: search, filter, order, copy and download. What is shown is what is copied and downloaded.
(() => {
  const byId = (id) => document.getElementById(id);
  const find = byId("find");
  if (!find) return;
  const controls = find.closest(".controls"), tested = document.querySelector(".as-tested"), found = document.querySelector(".matching");
  const body = found.querySelector("tbody");
  const [kind, result, by, output] = ["kind", "result", "by", "matching"].map(byId);
  const rows = [...tested.querySelectorAll("tr[data-finding]")].map((row, place) => ({
    row, place, home: row.parentElement, finding: JSON.parse(row.dataset.finding), text: row.textContent.toLowerCase(),
  }));
  controls.hidden = false;

  const isMissing = (value) => value === null || value === undefined;
  const orders = {
    effect: (one) => -Math.abs(one.effect - one.usual),
    p_value: (one) => (isMissing(one.p_value) ? Infinity : one.p_value),
    smallest: (one) => (isMissing(one.smallest) ? -Infinity : -one.smallest),
    name: (one) => one.name,
  };

  function matching() {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = rows.filter((one) => words.every((word) => one.text.includes(word))
      && (!kind || kind.value === "" || one.finding.kind === kind.value)
      && (result.value === "" || one.finding.verdict === result.value));
    const key = orders[by.value];
    const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    return key ? chosen.sort((a, b) => compare(key(a.finding), key(b.finding)) || a.place - b.place) : chosen;
  }

  function arrange() {
    const chosen = matching();
    const isUsual = !by.value && chosen.length === rows.length;
    if (isUsual) rows.forEach((one) => one.home.append(one.row));
    else body.replaceChildren(...chosen.map((one) => one.row));
    tested.hidden = !isUsual;
    found.hidden = isUsual;
    output.textContent = `${chosen.length} of ${rows.length}`;
  }

  const COLUMNS = ["kind", "name", "arms", "statement", "effect", "low", "high", "usual", "p_value", "verdict", "epsilon", "smallest"];
  const isWords = (value) => typeof value === "string" || Array.isArray(value);

  function cell(value) {
    const text = isMissing(value) ? "" : Array.isArray(value) ? value.join(" - ") : String(value);
    const safe = isWords(value) && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;  // no spreadsheet shall run it
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }

  function table(mark, form) {
    const lines = matching().map((one) => COLUMNS.map((name) => form(one.finding[name])).join(mark));
    return [COLUMNS.join(mark), ...lines].join("\n") + "\n";
  }

  function save(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  async function copy() {
    const text = table("\t", (value) => cell(value).replaceAll(/[\t\r\n]+/g, " "));
    try {
      await navigator.clipboard.writeText(text);
    } catch {  // a page opened from a file or in a notebook may not reach the clipboard that way
      const area = document.createElement("textarea");
      area.value = text;
      controls.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    output.textContent = `${matching().length} copied`;
  }

  find.addEventListener("input", arrange);
  [kind, result, by].forEach((one) => one && one.addEventListener("change", arrange));
  byId("copy").onclick = copy;
  byId("csv").onclick = () => save("findings.csv", "text/csv", table(",", cell));
  byId("json").onclick = () => save("findings.json", "application/json", JSON.stringify(matching().map((one) => one.finding), null, 1) + "\n");
  arrange();
})();
