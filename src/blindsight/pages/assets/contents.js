"use strict";
// Every page with sections: which of them is in sight, and nothing folded hides what a link leads to.
(() => {
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const root = document.documentElement;
  root.classList.add("js");
  addEventListener("beforeprint", () => all("details").forEach((one) => { one.open = true; }));

  function unfold() {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let one = target.closest("details"); one; one = one.parentElement.closest("details")) one.open = true;
    target.scrollIntoView();
  }
  addEventListener("hashchange", unfold);

  const links = all(".contents a"), pinned = document.querySelector(".pinned");
  if (pinned) new ResizeObserver(() => { root.style.scrollPaddingTop = `${pinned.offsetHeight + 12}px`; }).observe(pinned);
  unfold();
  if (!links.length) return;
  links.forEach((link) => link.addEventListener("click", () => {  // the same link twice changes no hash
    if (link.hash === location.hash) unfold();
  }));
  const headings = links.map((link) => document.getElementById(decodeURIComponent(link.hash.slice(1))));
  let waiting = false;

  function mark() {
    waiting = false;
    const visible = headings.filter((one) => one.checkVisibility());
    const passed = visible.filter((one) => one.getBoundingClientRect().top < pinned.offsetHeight + 40);
    const isAtEnd = scrollY > 0 && innerHeight + scrollY >= root.scrollHeight - 2;
    const current = headings.indexOf((isAtEnd ? visible : passed).at(-1));
    links.forEach((link, place) => {
      if (place !== current) link.removeAttribute("aria-current");
      else if (!link.hasAttribute("aria-current")) {
        link.setAttribute("aria-current", "true");
        const list = link.closest("ol");
        list.scrollLeft = link.offsetLeft - list.offsetLeft - list.clientWidth / 3;
      }
    });
  }
  addEventListener("scroll", () => { if (!waiting) { waiting = true; requestAnimationFrame(mark); } }, { passive: true });
  mark();
})();
