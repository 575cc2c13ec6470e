"""Secure sums: the coordinator learns the sum of the sites' whole numbers, modulo 2^32 or 2^64, and nothing else.

After Bonawitz et al. 2017 ("Practical secure aggregation for privacy-preserving machine learning", the variant against
active adversaries), on the complete graph of sites: made for tens of sites, not for thousands of devices. All
primitives come from `cryptography`. A site and the coordinator are state machines that exchange bytes; whatever carries
the bytes is trusted with nothing but delivery.

1. *Keys.* Each site makes two X25519 keys for this round, signs them with the key of its certificate, and sends them.
   The coordinator sends all of them to all (`KEY_LIST`).
2. *Shares.* Each site draws a seed, splits the seed and its private mask key by Shamir's scheme (t of n, t > 2n/3), and
   sends each peer its two shares, encrypted (`DELIVERY`).
3. *Masks.* Each site adds to its numbers a mask of its own (ChaCha20 under its seed), and for every peer that shared a
   mask that the two agree on, which one adds and the other subtracts. The coordinator adds up what arrives
   (`SURVIVORS`: whose numbers arrived).
4. *Agreement.* Each site signs the one set of survivors that it was shown, with a digest of everything before. It goes
   on only when t survivors have signed the same (`AGREEMENTS`).
5. *Unmasking.* Each site reveals, for every site in the sum, its share of the seed; for every site that dropped out
   after sharing, its share of the mask key. Any t sites are enough to remove all remaining masks.

**What is promised.** If the coordinator and at most 2t - n - 1 sites pool everything they have and deviate from the
protocol at will, they learn at most one sum over the other sites in each (run, round): over the honest members of one
set of at least `fewest` survivors. The argument is Bonawitz et al.'s for active adversaries: to unmask a single site
they need t shares of both of its secrets, an honest site reveals one kind only and only after t sites agreed on the
survivors, and two sets cannot both have t agreements, as 2t - n sites would have agreed to both, an honest one among
them. It rests on X25519, HKDF, ChaCha20-Poly1305, SHA-256, and the signatures. A sum without noise is no protection for
clients: `fleet.noise_shares` adds it at the sites.

**What is not promised.** Any site can spoil a round, by wrong shares or by silence, or distort the sum by wrong
numbers. Who took part in a round is public. Python cannot wipe memory, and its arithmetic on whole numbers does not
take constant time: someone who observes a site's processor is out of scope. Shares in `REVEALED` are not encrypted
against whoever can read the coordinator's connection: such a reader learns the same sum.

**Attacks**, each with a test in `tests/fleet/test_secure_sum_attacks.py`:

======================================================  ================================================================
the coordinator ...                                     what stops it
======================================================  ================================================================
sends sites different questions or models               each site signs the digest of what it received: lists of keys
                                                        are refused; with a conspiring site, masks do not cancel
shows sites different lists of keys                     they enter every key: shares do not open, agreements differ
adds a site, or replaces a site's key                   sites know all certificates: not a party, or a bad signature
leaves out sites until few are left                     every set below `fewest` is refused; so are terms with 2 sites
replays a round, or its messages                        a site claims (run, round) on disk first; digests differ
claims that a site dropped out, and keeps its numbers   they stay under the mask of its own seed
shows sites different survivors, to get both secrets    each site signs one set; fewer than t agree on any
asks for a second set of survivors                      a site answers one message of each kind
forges, drops or repeats agreements                     signatures; t different survivors must have signed
names survivors that did not share, or not the asked    refused
swaps, repeats or alters encrypted shares               keys are bound to sender, receiver and round; AEAD
alters masked numbers on the way                        every message of a site is signed
repeats or reorders messages                            the same answer again, or refused without effect
======================================================  ================================================================
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
