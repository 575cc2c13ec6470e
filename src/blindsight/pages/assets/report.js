"use strict";
// One control moves all grids: sample i of one arm stays beside sample i of every other.
(() => {
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const grids = all(".arm .tiles");
  if (!grids.length) return;

  const byId = (id) => document.getElementById(id);
  const [classes, order, zoom, status, dialog] = ["class", "order", "zoom", "status", "pair"].map(byId);
  const tiles = grids.map((grid) => all("li", grid));
  zoom.closest(".controls").hidden = false;

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

  // --- the dialog: one sample of every arm, beside, upon or against one another

  const buttons = Object.fromEntries(["previous", "next", "blink", "difference"].map((id) => [id, byId(id)]));
  const views = byId("views");
  let shown = null, timer = null;
  const isOn = (name) => buttons[name].getAttribute("aria-pressed") === "true";
  const press = (name, on) => buttons[name].setAttribute("aria-pressed", String(on));

  function figure(caption, picture) {
    const one = document.createElement("figure");
    one.append(caption, picture);
    return one;
  }

  const STRIP = 18;  // rows below a sample that say that it is synthetic

  function pixels(image) {
    const canvas = document.createElement("canvas");
    canvas.width = image.naturalWidth;
    canvas.height = image.naturalHeight - STRIP;
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, canvas.width, canvas.height);
  }

  const grey = (data, at) => (0.2126 * data[at] + 0.7152 * data[at + 1] + 0.0722 * data[at + 2]) / 255;

  // brighter than the first arm in red, darker in blue, as in the table of means
  function against(first, other) {
    const [a, b] = [first, other].map(pixels), canvas = document.createElement("canvas");
    const drawn = new ImageData(a.width, a.height);
    for (let at = 0; at < a.data.length; at += 4) {
      const by = grey(b.data, at) - grey(a.data, at), fade = Math.round(255 * (1 - Math.abs(by)));
      drawn.data.set(by > 0 ? [255, fade, fade, 255] : [fade, fade, 255, 255], at);
    }
    [canvas.width, canvas.height] = [a.width, a.height];
    canvas.getContext("2d").putImageData(drawn, 0, 0);
    canvas.setAttribute("role", "img");
    return canvas;
  }

  function draw() {
    clearInterval(timer);
    const arms = twins(shown).map((twin) => ({
      caption: twin.closest("figure").querySelector(".key").cloneNode(true), image: twin.querySelector("img"),
    }));
    const [first, ...others] = arms;
    byId("difference-legend").hidden = !isOn("difference");
    if (isOn("difference")) {
      views.replaceChildren(...others.map((other) => {
        const canvas = against(first.image, other.image);
        other.caption.append(` − ${first.caption.textContent}`);
        canvas.setAttribute("aria-label", `difference: ${other.caption.textContent}`);
        return figure(other.caption, canvas);
      }));
    } else if (isOn("blink")) {
      let turn = 0;
      const next = () => {
        const one = arms[turn++ % arms.length];
        views.replaceChildren(figure(one.caption.cloneNode(true), one.image.cloneNode()));
      };
      next();
      timer = setInterval(next, 600);
    } else views.replaceChildren(...arms.map((one) => figure(one.caption, one.image.cloneNode())));
    const name = shown.querySelector("span").textContent, list = visible(shown.closest(".tiles")), place = list.indexOf(shown);
    byId("pair-title").textContent = `${name ? `class ${name}, ` : ""}sample ${shown.dataset.index}`;
    buttons.previous.disabled = place <= 0;
    buttons.next.disabled = place >= list.length - 1;
  }

  function walk(by) {
    const list = visible(shown.closest(".tiles"));
    shown = list[list.indexOf(shown) + by] || shown;
    draw();
  }

  function turn(name) {
    press(name, !isOn(name));
    press(name === "blink" ? "difference" : "blink", false);
    draw();
  }

  function enlarge(tile) {
    shown = tile;
    [buttons.blink, buttons.difference].forEach((one) => { one.hidden = grids.length < 2; });
    draw();
    dialog.showModal();
  }

  buttons.previous.onclick = () => walk(-1);
  buttons.next.onclick = () => walk(1);
  buttons.blink.onclick = () => turn("blink");
  buttons.difference.onclick = () => turn("difference");
  dialog.addEventListener("close", () => {
    clearInterval(timer);
    press("blink", false);
    press("difference", false);
    shown.tabIndex = 0;
    shown.focus();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const steps = { ArrowLeft: -1, ArrowRight: 1 }, views = grids.length < 2 ? {} : { b: "blink", d: "difference" };
    if (event.key in steps) { event.preventDefault(); walk(steps[event.key]); }
    if (event.key in views) { event.preventDefault(); turn(views[event.key]); }
  });

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
