"""A training run over several hosts: host 0 trains as on one machine, the others answer its sums."""

import contextlib
from collections.abc import Generator
from pathlib import Path

from blindsight import keys
from blindsight.accounting.events import to_json
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import Algorithm
from blindsight.backends import use_cores
from blindsight.backends.host_parts import Answered, FollowingCohort, HostParts
from blindsight.backends.hosts import Hosts, connect
from blindsight.backends.meeting import Place
from blindsight.config import Config
from blindsight.errors import BlindsightError, HostLost, InvalidInput
from blindsight.jobs.run_data import read_run, with_listed_classes
from blindsight.jobs.tasks import classification_task, split_clients
from blindsight.jobs.train import make_ready, run_settings, run_training
from blindsight.training import Trained
from blindsight.version import __version__

__all__ = ["answer_sums", "run_on_hosts"]

_FINISHED, _REFUSED = b"finished", b"refused"  # instead of a sum; a message that asks for one is longer


def run_on_hosts(
    config: Config, place: Place, *, out: str | Path | None = None, ledger: Ledger | None = None, progress: bool = False
) -> Trained | None:
    """Train as `config` says, together with the other hosts; None on all but host 0.

    **Guarantee**: only host 0 opens the ledger, draws cohorts and noise, and writes the run's folder. The others
    compute sums of their clients that meet those of host 0 in a collective, and see nothing that is released but the
    model's weights, after host 0 has paid for them.
    """
    for table, name in ((config.audit, "[audit]"), (config.bayesian, "[bayesian]")):
        if table is not None:
            raise InvalidInput(f"{name} is computed on one machine: remove it, or train without --hosts")
    if config.model.is_language:
        raise InvalidInput("language models are trained on one machine: train without --hosts")
    use_cores()
    hosts = connect(place)
    hosts.agree(keys.digest_of([run_settings(config), __version__]), "settings or another version of Blindsight")
    if not hosts.is_writer:
        _follow(config, hosts)
        return None
    with _last_word(hosts):
        return run_training(config, out=out, ledger=ledger, progress=progress, hosts=hosts)


@contextlib.contextmanager
def _last_word(hosts: Hosts) -> Generator[None]:
    """Tell the other hosts how the block ended, so that none waits forever."""
    try:
        yield
    except HostLost:
        raise
    except BaseException:
        with contextlib.suppress(HostLost):
            hosts.tell(_REFUSED)
        raise
    hosts.tell(_FINISHED)


def _follow(config: Config, hosts: Hosts) -> None:
    """Answer host 0's sums from this host's part of the clients until the run ends."""
    config = with_listed_classes(config)
    population = read_run(config)
    clients, held_out = split_clients(population, config.data.held_out)
    task, _, algorithm = make_ready(config, classification_task(config, population, clients, held_out))
    answer_sums(algorithm, HostParts(task.clients, hosts))


def answer_sums(algorithm: Algorithm, backend: HostParts) -> None:
    """Take this host's part in every sum that host 0 asks for, until it ends the run.

    Each sum happens inside a step of the same algorithm, which ends with the sum: no noise is drawn here.
    """
    backend.hosts.agree(keys.digest_of(to_json(algorithm.event)), "privacy settings")
    state = algorithm.init()
    while (message := backend.hosts.tell()) != _FINISHED:
        if message == _REFUSED:
            raise BlindsightError("host 0 ended the run: its own message says why")
        with contextlib.suppress(Answered):
            algorithm.step(state, FollowingCohort(backend, message), key=keys.root())
