"""Laws of runs over several hosts, as two real processes: the model of one host, paid for and written by host 0."""

import itertools
import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from waiting import HANG_S, until

from blindsight.accounting.ledger import Ledger
from blindsight.backends.host_parts import _between, _edges
from blindsight.backends.meeting import Place
from blindsight.data.population import Population, open_population
from blindsight.errors import HostLost, InvalidInput

RUN = """
name = "hosts"
{seed}
[data]
population = "handwriting"
options = {{ clients = 40, examples = [3, 6] }}
held_out = 0
[model]
kind = "logistic"
[privacy]
noise_multiplier = 1.0
delta = 1e-3
cohort = 15
rounds = {rounds}
[training]
checkpoint_every = 1
"""


TABLE = """
name = "hosts"
seed = 1
[data]
population = "people.csv"
held_out = 0
[model]
kind = "logistic"
inputs = ["age"]
classes = ["no", "yes"]
[privacy]
noise_multiplier = 1.0
delta = 1e-3
cohort = 5
rounds = 2
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def write_run(folder: Path, rounds: int = 3, seed: str = "seed = 1") -> None:
    (folder / "run.toml").write_text(RUN.format(rounds=rounds, seed=seed))


def command(name: str, *more: str) -> list[str]:
    words = ["train", "run.toml", "--out", name, "--ledger", f"{name}.db", "--json", *more]
    return [sys.executable, "-m", "blindsight", *words]


def two_hosts(spawn, folder: Path) -> list[subprocess.Popen]:
    address = f"127.0.0.1:{free_port()}"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": folder}
    names = ["leader", "follower"]
    return [spawn(*command(names[host], "--hosts", f"{host}/2@{address}"), **pipes) for host in (0, 1)]


def weights(folder: Path) -> dict[str, bytes]:
    (newest,) = sorted(folder.glob("checkpoint-*.safetensors"), key=lambda path: path.stat().st_mtime)[-1:]
    return {name: leaf.tobytes() for name, leaf in load_file(newest).items()}


@pytest.mark.slow
def test_two_hosts_train_the_model_of_one_and_only_host_0_pays_and_writes(tmp_path, spawn):
    write_run(tmp_path)
    alone = subprocess.run(command("alone"), cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S, check=True)
    leader, follower = two_hosts(spawn, tmp_path)
    printed, errors = leader.communicate(timeout=HANG_S)
    silent, complaint = follower.communicate(timeout=HANG_S)
    assert (leader.returncode, follower.returncode) == (0, 0), errors + complaint
    # the same cohorts, and the same noise once: twice, or another on each host, would be another model
    assert weights(tmp_path / "leader") == weights(tmp_path / "alone")
    one, two = json.loads(alone.stdout), json.loads(printed)
    assert one["guarantee"]["epsilon"] == two["guarantee"]["epsilon"]
    assert any("traffic between the run's hosts" in words for words in two["guarantee"]["assumptions"])
    assert silent == ""
    assert not (tmp_path / "follower").exists()
    assert not (tmp_path / "follower.db").exists()
    entries = [[e.event for e in Ledger(tmp_path / f"{who}.db").entries("handwriting")] for who in ("alone", "leader")]
    assert entries[0] == entries[1]


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_host_that_dies_ends_the_run_on_the_other_and_the_run_resumes(tmp_path, spawn, victim):
    write_run(tmp_path, rounds=100_000, seed="")
    hosts = two_hosts(spawn, tmp_path)
    until(lambda: any((tmp_path / "leader").glob("checkpoint-*")) or any(host.poll() is not None for host in hosts))
    hosts[victim].send_signal(signal.SIGKILL)
    _, errors = hosts[1 - victim].communicate(timeout=60)
    assert hosts[1 - victim].returncode == HostLost.exit_code, errors
    said = [line for line in errors.splitlines() if line.startswith("error:")]
    assert len(said) == 1
    assert f"host {victim} was lost" in said[0]
    assert "Traceback" not in errors
    hosts[victim].communicate(timeout=60)
    done = max(int(re.findall(r"\d+", path.name)[0]) for path in (tmp_path / "leader").glob("checkpoint-*"))
    paid = len(Ledger(tmp_path / "leader.db").entries("handwriting"))
    assert paid >= 1
    write_run(tmp_path, rounds=done + 2, seed="")
    leader, follower = two_hosts(spawn, tmp_path)
    printed, errors = leader.communicate(timeout=HANG_S)
    follower.communicate(timeout=HANG_S)
    assert (leader.returncode, follower.returncode) == (0, 0), errors
    assert json.loads(printed)["rounds"] == done + 2
    assert len(Ledger(tmp_path / "leader.db").entries("handwriting")) > paid


@pytest.mark.slow
def test_hosts_with_other_settings_are_refused(tmp_path, spawn):
    write_run(tmp_path)
    address = f"127.0.0.1:{free_port()}"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": tmp_path}
    leader = spawn(*command("leader", "--hosts", f"0/2@{address}"), **pipes)
    (tmp_path / "other").mkdir()
    write_run(tmp_path / "other", rounds=4)
    follower = spawn(*command("follower", "--hosts", f"1/2@{address}"), **{**pipes, "cwd": tmp_path / "other"})
    for host in (leader, follower):
        _, errors = host.communicate(timeout=HANG_S)
        assert host.returncode == 2
        assert "host 1 has other settings" in errors
    assert not (tmp_path / "leader").exists()


@pytest.mark.slow
def test_a_host_whose_clients_have_other_examples_than_host_0_knows_is_refused(tmp_path, spawn):
    """Noise under a seed is bound to host 0's copy: else a change on another host would be noised as before."""
    address = f"127.0.0.1:{free_port()}"
    hosts = list[subprocess.Popen]()
    for host, name in enumerate(("leader", "follower")):
        folder = tmp_path / name
        folder.mkdir()
        ages = [20 + n for n in range(39)] + [70 + host]  # the last client is host 1's
        rows = [f"c{n // 4},{age},{'yes' if age > 40 else 'no'}" for n, age in enumerate(ages)]
        (folder / "people.csv").write_text("\n".join(["client,age,label", *rows, ""]))
        (folder / "run.toml").write_text(TABLE)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": folder}
        hosts.append(spawn(*command(name, "--hosts", f"{host}/2@{address}"), **pipes))
    for host in hosts:
        _, errors = host.communicate(timeout=HANG_S)
        assert host.returncode == 2, errors
        assert "host 1 has other examples of its clients than host 0" in errors
    assert not Ledger(tmp_path / "leader" / "leader.db").entries()


def test_parts_cover_every_client_once_and_stay_memory_maps(tmp_path):
    sizes = np.array([0, 0, 7, 1, 0, 30, 2, 2, 0])
    Population({"x": np.arange(sizes.sum())}, sizes=sizes, name="few").save(tmp_path / "few")
    whole = open_population(tmp_path / "few")
    for count in (1, 2, 3, 9):
        edges = _edges(whole, count)
        assert edges[0] == 0
        assert edges[-1] == whole.size
        assert np.all(np.diff(edges) >= 1)
        parts = [_between(whole, *pair) for pair in itertools.pairwise(edges)]
        assert np.concatenate([part.columns["x"] for part in parts]).tolist() == whole.columns["x"].tolist()
        assert all(isinstance(part.columns["x"], np.memmap) for part in parts if part.n_examples)
    with pytest.raises(InvalidInput, match="fewer than the 10 hosts"):
        _edges(whole, 10)


def test_a_place_is_spelled_out_or_found_in_jax_variables():
    assert Place.parse("1/2@10.0.0.1:8476") == Place(1, 2, "10.0.0.1:8476")
    variables = {"JAX_PROCESS_ID": "0", "JAX_NUM_PROCESSES": "3", "JAX_COORDINATOR_ADDRESS": "h:1"}
    assert Place.from_environment(variables) == Place(0, 3, "h:1")
    assert Place.from_environment({}) is None
    for wrong in ("2/2@h:1", "0/2", "0/2@h", "a/2@h:1", "0/2@h:0", "0/2@h:65536", "0/2@:1"):
        with pytest.raises(InvalidInput):
            Place.parse(wrong)
    with pytest.raises(InvalidInput, match="set all of"):
        Place.from_environment({"JAX_PROCESS_ID": "0"})
