"""Time to rank canaries, compared with a matrix product of as many operations on the same device.

    python benchmarks/ranking.py [--canaries 27] [--references 2000000] [--output FILE.json]

The word model of Ramaswamy et al. 2020: 10,000 words, an embedding of 96, 670 cells; canaries of five words of which
two are known. Every reference takes one step of the recurrent layer and one row of logits, whatever it shares with
others: that is counted, as two operations for each weight. No reference is skipped as unlikely, because to an untrained
model all phrases are nearly alike. With fewer references or canaries the total time is marked as extrapolated.
"""

import argparse
import json
import platform
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from blindsight import keys
from blindsight.audit.canaries import secret_sharer
from blindsight.audit.exposure import log_probabilities, references
from blindsight.models.cifg_lstm import word_model

WORDS, CANARIES, REFERENCES = 10_000, 27, 2_000_000
STEP = 2 * ((96 + 96) * 3 * 670 + 670 * 96 + 96 * WORDS)  # operations of one reference


def product_seconds(operations: float, side: int) -> float:
    """The time of a product of square float32 matrices with this many operations, the best of several."""
    matrix = jax.random.normal(jax.random.key(0), (side, side), jnp.float32)
    multiply = jax.jit(lambda a: jnp.matmul(a, a, precision=jax.lax.Precision.HIGHEST))
    multiply(matrix).block_until_ready()
    times = []
    for _ in range(5):
        began = time.perf_counter()
        multiply(matrix).block_until_ready()
        times.append(time.perf_counter() - began)
    return min(times) * operations / (2 * side**3)


def main() -> None:
    """Time, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--canaries", type=int, default=CANARIES)
    parser.add_argument("--references", type=int, default=REFERENCES)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    words, key = np.arange(4, WORDS), keys.reproducible(1)
    model = word_model(WORDS, key=jax.random.key(0))
    canaries = secret_sharer(words, key=key)
    compared = references(words, options.references, 3, key=key)
    contexts = canaries.contexts()[: options.canaries]
    log_probabilities(model, contexts[0], compared)  # compiles
    began = time.perf_counter()
    for context in contexts:
        log_probabilities(model, context, compared)
    seconds = time.perf_counter() - began
    steps = len(contexts) * (options.references + len(np.unique(compared[:, 0])))  # and one for each first word
    steps_for_all = CANARIES * (REFERENCES + WORDS)
    product = product_seconds(steps * STEP, 2048 if jax.default_backend() == "cpu" else 16384)
    found = {
        "canaries": len(contexts),
        "references": options.references,
        "seconds": seconds,
        "as_a_product_seconds": product,
        "ratio": seconds / product,
        "seconds_for_27_of_2M": seconds * steps_for_all / steps,
        "extrapolated": (len(contexts), options.references) != (CANARIES, REFERENCES),
        "device": jax.devices()[0].device_kind,
        "machine": platform.machine(),
        "jax": jax.__version__,
    }
    print(json.dumps(found, indent=2))
    if options.output:
        options.output.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
