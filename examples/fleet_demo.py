"""Three hospitals, a server and a coordinator on this machine: real processes, real NATS, mutual TLS.

Run it by `make fleet-demo`.
An update inverts the images of about half of the writers, at sites of different sizes. Nobody sends a character
anywhere: the coordinator asks on which clients the model fails, and unmasks sums that the sites have noised.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

BLINDSIGHT = (sys.executable, "-m", "blindsight")
SITES = {"north": (1500, "invert:0.5"), "south": (600, "invert:0.6"), "west": (300, "invert:0.4")}  # clients, fault
QUESTION = ["--reference", "handwriting", "--low", "0.5", "--high", "0.9", "--epsilon", "8", "--delta", "1e-6"]
STARTING_S = 600.0  # on a machine that has much else to do

SITE_TOML = """\
[site]
name = "{name}"
server = "{server}"
clients = {clients}

[data]
population = "handwriting"
options = {{ clients = {clients}, seed = {seed}, fault = "{fault}" }}

[policy]
approve = "automatically"
tasks = ["slices"]
epsilon_per_question = 8.0
epsilon_total = 8.0
delta = 1e-5
"""


def blindsight(*words: str) -> None:
    """Run a command to its end."""
    print("\n$ blindsight", *words, flush=True)
    if code := subprocess.run([*BLINDSIGHT, *words], check=False).returncode:
        sys.exit(code)


@contextlib.contextmanager
def running(log: Path, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process beside this one, until the block ends; what it says goes into a file."""
    print("$ blindsight", *words, "&", flush=True)
    with open(log, "w", encoding="utf-8") as out:
        process = subprocess.Popen([*BLINDSIGHT, *words], stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def wait(holds: Callable[[], bool], beside: Sequence["subprocess.Popen[bytes]"], folder: Path) -> None:
    """Come back when `holds` does."""
    end = time.monotonic() + STARTING_S
    while not holds():
        if time.monotonic() > end or any(process.poll() is not None for process in beside):
            logs = [
                f"{path.name}:\n{path.read_text(encoding='utf-8')[-2000:]}" for path in sorted(folder.glob("*.log"))
            ]
            sys.exit("It did not start.\n" + "\n".join(logs))
        time.sleep(0.2)


def are_there(fleet: Path) -> bool:
    """Whether every site answers."""
    words = [*BLINDSIGHT, "fleet", "status", str(fleet), "--wait", "2", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode == 0 and all(site["here"] for site in json.loads(done.stdout)["sites"])


def fill_in(fleet: Path) -> None:
    """What the owner of each site does: say where its data are, and what it answers."""
    for number, (name, (clients, fault)) in enumerate(SITES.items(), 1):
        path = fleet / "sites" / name / "SITE.toml"
        server = tomllib.loads(path.read_text(encoding="utf-8"))["site"]["server"]
        text = SITE_TOML.format(name=name, server=server, clients=clients, seed=number, fault=fault)
        path.write_text(text, encoding="utf-8")


def main() -> None:
    """Make a fleet, start it, ask it, and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="keep everything here; by default it is deleted at the end")
    folder, began = parser.parse_args().folder, time.monotonic()
    with contextlib.ExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="blindsight-fleet-")))
        fleet, log = place / "hospitals", place / "server.log"
        blindsight("fleet", "init", str(fleet), "--sites", ",".join(SITES), "--port", "0")
        fill_in(fleet)
        beside = [stack.enter_context(running(log, "fleet", "up", str(fleet)))]
        wait(lambda: "listens" in log.read_text(encoding="utf-8"), beside, place)
        for name in SITES:
            settings = fleet / "sites" / name / "SITE.toml"
            beside.append(stack.enter_context(running(place / f"{name}.log", "site", "run", str(settings))))
        wait(lambda: are_there(fleet), beside, place)
        ledger, run = str(place / "ledger.db"), str(place / "run")
        blindsight("inspect", "slices", "--fleet", str(fleet), *QUESTION, "--ledger", ledger, "--out", run)
        blindsight("fleet", "status", str(fleet))
        blindsight("site", "log", str(fleet / "sites" / "west" / "SITE.toml"))
    print(f"\n{time.monotonic() - began:.0f} s, {sum(clients for clients, _ in SITES.values()):,} clients.")


if __name__ == "__main__":
    main()
