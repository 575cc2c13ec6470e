/** The features of an address; blindsight/service/addresses.py computes the same. */

const WORDS = [
  "account",
  "admin",
  "bank",
  "confirm",
  "login",
  "pay",
  "secure",
  "signin",
  "update",
  "verify",
  "web",
  "wp-",
];
const PARTS = /^(?:([a-z]+):\/\/)?([^/?#]*)(.*)$/is;

/** @param {string} address */
export function describe(address) {
  const [, scheme = "", name = "", path = ""] = PARTS.exec(address) ?? [];
  const host = name.toLowerCase();
  const low = address.toLowerCase();
  return {
    length: letters(address),
    host: letters(host),
    path: letters(path),
    dots: count(host, /\./g),
    hyphens: count(host, /-/g),
    digits: count(host, /[0-9]/g),
    "path digits": count(path, /[0-9]/g),
    slashes: count(path, /\//g),
    https: scheme.toLowerCase() === "https",
    at: address.includes("@"),
    numeric: /^[0-9.]+(:[0-9]+)?$/.test(host),
    query: address.includes("?"),
    www: host.startsWith("www."),
    ...Object.fromEntries(WORDS.map((word) => [`"${word}"`, low.includes(word)])),
    ending: host.slice(host.lastIndexOf(".") + 1),
  };
}

const letters = (/** @type {string} */ text) => [...text].length; // not halves of them
const count = (/** @type {string} */ text, /** @type {RegExp} */ what) => (text.match(what) ?? []).length;
