"use strict";
// One control moves all grids: sample i of one arm stays beside sample i of every other.
(() => {
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const root = document.documentElement;
  const grids = all(".arm .tiles");
  root.classList.add("js");
  addEventListener("beforeprint", () => all("details").forEach((one) => { one.open = true; }));
  if (!grids.length) return;

  const byId = (id) => document.getElementById(id);
  const [classes, order, zoom, status, dialog] = ["class", "order", "zoom", "status", "pair"].map(byId);
  const tiles = grids.map((grid) => all("li", grid));
  all(".controls").forEach((one) => { one.hidden = false; });

  const visible = (grid) => all("li:not([hidden])", grid);
  const twins = (tile) => all(`.arm .tiles li[data-index="${tile.dataset.index}"]`);

  function arrange() {
    const wanted = classes ? classes.value : "";
    const by = order ? order.value : "index";
    grids.forEach((grid, arm) => {
      tiles[arm].sort((a, b) => a.dataset[by] - b.dataset[by]);
      tiles[arm].forEach((tile) => {
        tile.hidden = wanted !== "" && tile.dataset.class !== wanted;
        tile.tabIndex = -1;
      });
      grid.append(...tiles[arm]);
      grid.scrollTop = 0;
      const first = visible(grid)[0];
      if (first) first.tabIndex = 0;
    });
    all(".strip [data-class]").forEach((cell) => {
      const other = cell.dataset.class !== "" && cell.dataset.class !== wanted;
      cell.classList.toggle("dim", wanted !== "" && other);
      if (cell.matches("th") && cell.dataset.class === wanted) cell.closest(".scroll").scrollLeft = cell.offsetLeft - 250;
    });
    status.textContent = `${visible(grids[0]).length} of ${tiles[0].length}`;
  }

  function link(tile) {
    all(".linked").forEach((one) => one.classList.remove("linked"));
    if (tile) twins(tile).forEach((one) => one.classList.add("linked"));
  }

  function enlarge(tile) {
    const figures = twins(tile).map((twin) => {
      const figure = document.createElement("figure");
      const caption = twin.closest("figure").querySelector(".key").cloneNode(true);
      figure.append(caption, twin.querySelector("img").cloneNode());
      return figure;
    });
    dialog.querySelector("div").replaceChildren(...figures);
    dialog.showModal();
  }

  function step(grid, tile, key) {
    const shown = visible(grid);
    const across = shown.filter((one) => one.offsetTop === shown[0].offsetTop).length;
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across }[key];
    const next = shown[shown.indexOf(tile) + by];
    if (!next) return;
    tile.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  grids.forEach((grid, arm) => {
    grid.setAttribute("role", "listbox");
    grid.setAttribute("aria-label", grid.closest("figure").querySelector(".key").textContent);
    tiles[arm].forEach((tile) => tile.setAttribute("role", "option"));
    const tileOf = (event) => event.target.closest("li");
    grid.addEventListener("mouseover", (event) => link(tileOf(event)));
    grid.addEventListener("mouseleave", () => link(null));
    grid.addEventListener("focusin", (event) => link(tileOf(event)));
    grid.addEventListener("focusout", () => link(null));
    grid.addEventListener("click", (event) => { if (tileOf(event)) enlarge(tileOf(event)); });
    grid.addEventListener("keydown", (event) => {
      const tile = tileOf(event);
      if (tile && event.key.startsWith("Arrow")) { event.preventDefault(); step(grid, tile, event.key); }
      // else the same Enter would press the button that the dialog moves to, and close it
      if (tile && event.key === "Enter") { event.preventDefault(); enlarge(tile); }
    });
    grid.addEventListener("scroll", () => {
      grids.forEach((other) => { if (other !== grid && other.scrollTop !== grid.scrollTop) other.scrollTop = grid.scrollTop; });
    }, { passive: true });
  });
  [classes, order].forEach((control) => control && control.addEventListener("change", arrange));
  zoom.addEventListener("input", () => grids.forEach((grid) => grid.style.setProperty("--tile", `${zoom.value}px`)));
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  arrange();
})();
