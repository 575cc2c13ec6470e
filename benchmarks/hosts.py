"""A run of a million clients on one process and on two: seconds and memory of each.

    python benchmarks/hosts.py --out benchmarks/results/hosts.json

The population is generated on demand, 8 examples of 16 numbers per client; cohorts of 10,000 clients train a logistic
regression for 20 rounds with exact noise. Each process is confined to one core. The models must agree bit for bit. On a
busy machine only the processor time (`cpu_s`, imports and compilation included) and the memory mean anything.
"""

import argparse
import hashlib
import json
import os
import platform
import resource
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

FEATURES, EXAMPLES, CLASSES = 16, 8, 10


def draw(clients: np.ndarray) -> dict[str, np.ndarray]:
    """Every client's examples follow from its number alone."""
    rows = (clients[:, None] * EXAMPLES + np.arange(EXAMPLES)).ravel().astype(np.uint64)
    mixed = (rows[:, None] * np.uint64(FEATURES) + np.arange(FEATURES, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    image = (mixed >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)
    return {"image": image, "label": np.argmax(image[:, :CLASSES], axis=1).astype(np.int32)}


def child(settings: dict[str, Any]) -> None:
    """One process of a run; prints its measurements."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[settings["core"]]})
    import jax
    import optax

    import blindsight as bs
    from blindsight.accounting.events import to_json
    from blindsight.backends.host_parts import HostParts
    from blindsight.backends.hosts import connect
    from blindsight.backends.meeting import Place
    from blindsight.data.generated import GeneratedPopulation
    from blindsight.jobs.hosts import answer_sums

    bs.backends.use_cores()
    hosts = connect(Place(**settings["place"])) if settings["place"] else None
    started, clients = time.monotonic(), settings["clients"]
    people = GeneratedPopulation(draw, sizes=np.full(clients, EXAMPLES), name="million", recipe="hosts", synthetic=True)
    privacy = bs.Privacy(population=clients, cohort=settings["cohort"], rounds=settings["rounds"], noise_multiplier=1.0)
    algorithm = bs.algorithms.dp_fedavg(
        bs.models.Logistic((FEATURES,), CLASSES, key=jax.random.key(0)),
        bs.models.cross_entropy("image", "label"),
        privacy,
        client_optimizer=optax.sgd(0.1),
        server_optimizer=optax.sgd(1.0),
        batch_size=4,
    )
    backend: Any = bs.backends.Simulation(people) if hosts is None else HostParts(people, hosts)
    if hosts is not None and hosts.is_writer:
        hosts.agree(bs.keys.digest_of(to_json(algorithm.event)), "privacy settings")
    ready, digest = time.monotonic(), ""
    if hosts is not None and not hosts.is_writer:
        answer_sums(algorithm, backend)
    else:
        run = bs.runs.begin(settings["folder"], "million", {})
        key = bs.keys.reproducible(1)
        trained = bs.training.train(
            algorithm, backend, privacy, population="million", delta=1e-7, key=key, run=run,
            ledger=bs.Ledger(Path(settings["folder"]) / "ledger.db"),
        )  # fmt: skip
        leaves = b"".join(
            np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(trained.model) if hasattr(leaf, "dtype")
        )
        digest = hashlib.sha256(leaves).hexdigest()[:16]
        if hosts is not None:
            hosts.tell(b"finished")
    print(json.dumps({
        "ready_s": round(ready - started, 2),
        "training_s": round(time.monotonic() - ready, 2),
        "cpu_s": round(time.process_time(), 2),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "model": digest,
    }))  # fmt: skip


def run(hosts: int, sizes: dict[str, int]) -> list[dict[str, Any]]:
    """The measurements of every process of one run."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{one.getsockname()[1]}"
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for index in range(hosts):
            place = {"index": index, "count": hosts, "address": address} if hosts > 1 else None
            settings = {**sizes, "core": index, "place": place, "folder": f"{folder}/run"}
            words = [sys.executable, __file__, "--child", json.dumps(settings)]
            started.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        return [json.loads(process.communicate(timeout=900)[0].splitlines()[-1]) for process in started]


def main() -> None:
    """Run both and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child")
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--cohort", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    words = parser.parse_args()
    if words.child:
        child(json.loads(words.child))
        return
    sizes = {"clients": words.clients, "cohort": words.cohort, "rounds": words.rounds}
    results: dict[str, Any] = {
        "command": "python benchmarks/hosts.py",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        **sizes,
        "one": run(1, sizes),
        "two": run(2, sizes),
        "load_at_end": os.getloadavg()[0],
    }
    results["bit_equal"] = results["one"][0]["model"] == results["two"][0]["model"]
    text = json.dumps(results, indent=2) + "\n"
    print(text)
    if words.out:
        words.out.write_text(text)


if __name__ == "__main__":
    main()
