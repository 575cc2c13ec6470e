/**
 * Exact noise in whole steps: discrete Laplace and rounded Gaussian, from the system's cryptographic randomness.
 *
 * Laplace after Canonne, Kamath and Steinke 2020 (arXiv:2004.00010, Algorithm 2), Gaussian after Karney 2016 (ACM
 * Transactions on Mathematical Software 42:3, Algorithm N), with scales that are powers of two. Every coin tossed has a
 * probability that is a ratio of whole numbers, or a real number whose binary digits are read until they decide. No
 * floating-point logarithm is taken and no probability is rounded: a sampler that maps uniform floating-point numbers
 * through a logarithm leaves gaps in what it can return, and the gaps betray the value beneath the noise (Mironov 2012).
 * How long a draw takes does depend on what is drawn; a page that must not be timed sends its update later, not at once.
 */

import { BlindsightError } from "./errors.js";

/** Node 18 keeps its generator in a module; everywhere else it is a global. */
const system = globalThis.crypto ?? (await import("node:crypto")).webcrypto;

const LARGEST_BITS = 24;

/** Uniform whole numbers from 32-bit words, by default the operating system's. */
export class Coins {
  #words = new Uint32Array(new ArrayBuffer(4096));
  #next = this.#words.length;
  #fill;

  /** @param {(words: Uint32Array<ArrayBuffer>) => unknown} [fill] writes uniform words; tests have another */
  constructor(fill = (words) => system.getRandomValues(words)) {
    this.#fill = fill;
  }

  /** A uniform 32-bit word, used once. */
  word() {
    if (this.#next === this.#words.length) {
      this.#fill(this.#words);
      this.#next = 0;
    }
    const word = this.#words[this.#next];
    this.#words[this.#next++] = 0;
    return word;
  }

  /** A whole number, uniform on [0, 2^count), for a count of 0 to 53. @param {number} count */
  bits(count) {
    if (count === 0) return 0;
    if (count <= 32) return this.word() >>> (32 - count);
    return (this.word() >>> (64 - count)) * 2 ** 32 + this.word();
  }

  /** A whole number, uniform on [0, bound), for a bound of 1 to 2^32. @param {number} bound */
  below(bound) {
    const usable = 2 ** 32 - (2 ** 32 % bound); // words from here on would favour small remainders
    for (;;) {
      const word = this.word();
      if (word < usable) return word % bound;
    }
  }

  /**
   * True with probability exp(-numerator / 2^bits), for a ratio of at most 1.
   *
   * Von Neumann's series: toss with probabilities g/1, g/2, g/3, ... until the first failure; it comes at an odd place
   * with probability 1 - g + g^2/2! - g^3/3! + ... = exp(-g).
   * @param {number} numerator
   * @param {number} bits
   */
  expMinus(numerator, bits) {
    let place = 1;
    while (this.bits(bits) < numerator && this.below(place) === 0) place += 1;
    return place % 2 === 1;
  }

  /** v with P(v >= k) = exp(-k): how often a coin of exp(-1) comes up before it fails. */
  geometric() {
    let count = 0;
    while (this.expMinus(1, 0)) count += 1;
    return count;
  }
}

/**
 * `count` independent whole numbers with P(x) proportional to exp(-|x| / 2^bits).
 * @param {number} bits
 * @param {number} count
 * @param {Coins} [coins]
 */
export function discreteLaplace(bits, count, coins = new Coins()) {
  checkBits(bits);
  return Float64Array.from({ length: count }, () => oneLaplace(bits, coins));
}

/**
 * `count` independent normal numbers of standard deviation 2^bits, each rounded to the nearest whole number.
 *
 * For whole x, x + round(g) = round(x + g): added to whole numbers, the noise protects as a Gaussian does, without slack.
 * @param {number} bits
 * @param {number} count
 * @param {Coins} [coins]
 */
export function roundedGaussian(bits, count, coins = new Coins()) {
  checkBits(bits);
  return Float64Array.from({ length: count }, () => oneGaussian(bits, coins));
}

/** @param {number} bits @param {Coins} coins */
function oneLaplace(bits, coins) {
  for (;;) {
    const remainder = coins.bits(bits);
    if (!coins.expMinus(remainder, bits)) continue;
    // u + s v with P(u) ~ exp(-u/s) on [0, s) and P(v) ~ exp(-v): the magnitude has weight exp(-magnitude/s)
    const magnitude = remainder + coins.geometric() * 2 ** bits;
    const negative = coins.bits(1) === 1;
    if (negative && magnitude === 0) continue; // zero has one sign only
    return negative ? -magnitude : magnitude;
  }
}

/** A real number, uniform on (0, 1), of which as many 32-bit digits exist as somebody has asked for. */
class Uniform {
  #digits = /** @type {number[]} */ ([]);
  #coins;

  /** @param {Coins} coins */
  constructor(coins) {
    this.#coins = coins;
  }

  /** The digit at this place; those before it have been read. @param {number} place */
  digit(place) {
    if (place === this.#digits.length) this.#digits.push(this.#coins.word());
    return this.#digits[place];
  }

  /** True with this number as probability: whether another uniform number is smaller. */
  coin() {
    for (let place = 0; ; place += 1) {
      const other = this.#coins.word();
      const own = this.digit(place);
      if (other !== own) return other < own;
    }
  }

  /** This number times 2^bits, rounded to the nearest whole number, for fewer than 32 bits. @param {number} bits */
  rounded(bits) {
    return ((this.digit(0) >>> (31 - bits)) + 1) >>> 1; // one bit more tells on which side of a half it lies
  }
}

/**
 * round(2^bits g) for a standard normal g = (k + x) or -(k + x), with whole k and real x in (0, 1).
 *
 * k is proposed with weight exp(-k/2) and kept with probability exp(-k (k - 1)/2); x is proposed uniformly and kept with
 * probability exp(-x (2k + x)/2), by k + 1 coins in a row. Together that is exp(-(k + x)^2/2).
 * @param {number} bits
 * @param {Coins} coins
 */
function oneGaussian(bits, coins) {
  for (;;) {
    let whole = 0;
    while (coins.expMinus(1, 1)) whole += 1;
    if (!always((whole * (whole - 1)) / 2, () => coins.expMinus(1, 0))) continue;
    const x = new Uniform(coins);
    if (!always(whole + 1, () => expMinusSlope(x, whole, coins))) continue;
    const magnitude = whole * 2 ** bits + x.rounded(bits);
    return coins.bits(1) === 1 && magnitude > 0 ? -magnitude : magnitude;
  }
}

/**
 * True with probability exp(-g), g = x (2k + x) / (2k + 2), by von Neumann's series as in `expMinus`.
 *
 * A coin of g is one of x, and one of (2k + x) / (2k + 2): of 2k + 2 equally likely cases, 2k are heads, one is decided
 * by another coin of x, and one is tails.
 * @param {Uniform} x
 * @param {number} whole
 * @param {Coins} coins
 */
function expMinusSlope(x, whole, coins) {
  const heads = () => {
    if (!x.coin()) return false;
    const among = coins.below(2 * whole + 2);
    return among < 2 * whole || (among === 2 * whole && x.coin());
  };
  let place = 1;
  while (heads() && coins.below(place) === 0) place += 1;
  return place % 2 === 1;
}

/** Whether a coin comes up so many times in a row. @param {number} times @param {() => boolean} coin */
function always(times, coin) {
  for (let left = times; left > 0; left -= 1) if (!coin()) return false;
  return true;
}

/** @param {number} bits */
function checkBits(bits) {
  if (!Number.isInteger(bits) || bits < 1 || bits > LARGEST_BITS) {
    throw new BlindsightError(
      `the scale of the noise must be 2^1 to 2^${LARGEST_BITS} steps of its grid, got 2^${bits}`,
    );
  }
}
