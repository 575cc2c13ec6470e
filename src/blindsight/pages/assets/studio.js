/* What pages of the studio do beyond htmx: the anti-forgery token, and a choice of two runs. */
"use strict";

const csrf = document.querySelector("meta[name=csrf]")?.content ?? "";
document.addEventListener("htmx:configRequest", (event) => {
  event.detail.headers["X-CSRF-Token"] = csrf;
});

document.addEventListener("htmx:sendError", () => {
  let line = document.getElementById("gone");
  if (!line) {
    line = document.createElement("p");
    line.id = "gone";
    line.className = "gone";
    line.setAttribute("role", "alert");
    document.body.append(line);
  }
  line.textContent = "The studio does not answer: is it still running?";
});

document.addEventListener("htmx:responseError", (event) => {
  const target = event.detail.target;
  if (target) target.textContent = event.detail.xhr.responseText.slice(0, 300);
});

/* Compare: a button that is there for exactly two. */
const chosen = () => [...document.querySelectorAll("#comparing input[name=run]:checked")];
document.addEventListener("change", (event) => {
  if (!event.target.closest("#comparing")) return;
  const button = document.querySelector("[data-compare]");
  const count = chosen().length;
  button.disabled = count !== 2;
  button.textContent = count > 2 ? `Compare two, not ${count}` : "Compare two";
});
