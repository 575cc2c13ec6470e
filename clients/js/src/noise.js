/**
 * Exact noise in whole steps: discrete Laplace and discrete Gaussian from the system's cryptographic randomness.
 *
 * After Canonne, Kamath and Steinke 2020 (arXiv:2004.00010, Algorithms 1 to 3), with scales that are powers of two, so
 * that every coin tossed has a probability that is a ratio of whole numbers. No floating-point logarithm is taken and
 * no probability is rounded: a sampler that maps uniform floating-point numbers through a logarithm leaves gaps in what
 * it can return, and the gaps betray the value beneath the noise (Mironov 2012). How long a draw takes does depend on
 * what is drawn; a page that must not be timed sends its update later, not at once.
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
 * `count` independent whole numbers with P(x) proportional to exp(-x^2 / (2 s^2)), s = 2^bits.
 * @param {number} bits
 * @param {number} count
 * @param {Coins} [coins]
 */
export function discreteGaussian(bits, count, coins = new Coins()) {
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

/** A Laplace draw y is kept with probability exp(-(|y| - s)^2 / (2 s^2)). @param {number} bits @param {Coins} coins */
function oneGaussian(bits, coins) {
  const shift = BigInt(2 * bits + 1);
  for (;;) {
    const proposal = oneLaplace(bits, coins);
    const distance = BigInt(Math.abs(proposal) - 2 ** bits);
    const square = distance * distance; // up to 62 bits, more than a double holds
    const rest = Number(square & ((1n << shift) - 1n));
    if (coins.expMinus(rest, Number(shift)) && survives(square >> shift, coins)) return proposal;
  }
}

/** True with probability exp(-times). @param {bigint} times @param {Coins} coins */
function survives(times, coins) {
  for (let left = times; left > 0n; left -= 1n) if (!coins.expMinus(1, 0)) return false;
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
