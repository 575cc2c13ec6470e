"""Flower: its FedAvg strategy over its Ray simulation, and its wrapper for central privacy with clipping on the client.

python -m peers.flower_peer --task cnn --processes 2          (in benchmarks/)

`--processes` is the number of Ray's actors, `--threads` the CPUs that each is given. One virtual node serves one place
of the cohort and is told which client to be; fewer nodes than clients only help Flower.
"""

import importlib.metadata
import logging
from collections.abc import Iterable

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping, FedAvg
from flwr.simulation import run_simulation

from peers import flower_client, torch_models
from peers.contest import Run


class FixedCohorts(FedAvg):
    """Federated averaging over the tasks' cohorts; a failed client ends the run."""

    def __init__(self, run: Run, device: str) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.cohorts = run.cohorts()
        self.settings = {"task": run.task.name, "device": device, "threads": run.options.threads}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """One message for each client of the round."""
        for node, client in zip(grid.get_node_ids(), next(self.cohorts), strict=True):
            own = ConfigRecord({**config, **self.settings, "client": client})
            content = RecordDict({"arrays": arrays, "config": own})
            yield Message(content, dst_node_id=node, message_type=MessageType.TRAIN)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]):
        """Flower's own, unless a client failed."""
        replies = list(replies)
        for reply in replies:
            if reply.has_error():
                raise RuntimeError(f"a client failed: {reply.error.reason}")
        return super().aggregate_train(server_round, replies)


def server(run: Run, device: str) -> ServerApp:
    """The server's half."""
    app, task = ServerApp(), run.task
    strategy = FixedCohorts(run, device)
    if run.options.private:
        strategy = DifferentialPrivacyClientSideFixedClipping(strategy, task.noise_multiplier, task.clip, run.cohort)

    def watch(server_round: int, arrays: ArrayRecord) -> None:
        if server_round:  # 0 is before the first
            run.round_done(lambda: torch_models.read(task, arrays.to_torch_state_dict()))

    @app.main()
    def main(grid: Grid, _) -> None:
        start = ArrayRecord(torch_models.build(task, "cpu").state_dict())
        strategy.start(grid, start, num_rounds=run.options.rounds, evaluate_fn=watch)

    return app


def main() -> None:
    """Train, report."""
    logging.getLogger("flwr").setLevel(logging.WARNING)
    run = Run("flower")
    processes, threads = run.options.processes, run.options.threads
    device = torch_models.device_name(run.options.device)
    run_simulation(
        server(run, device),
        flower_client.app(run.options.private),
        num_supernodes=run.cohort,
        backend_config={
            "init_args": {"num_cpus": processes * threads, "logging_level": logging.WARNING, "log_to_driver": False},
            "client_resources": {"num_cpus": threads, "num_gpus": 1 / processes if device == "cuda" else 0.0},
        },
    )
    versions = (f"{name} {importlib.metadata.version(name)}" for name in ("flwr", "ray"))
    run.report(", ".join([*versions, f"torch {torch.__version__}"]))


if __name__ == "__main__":
    main()
