"""Apple's pfl: its FederatedAveraging on its SimulatedBackend, and its Gaussian mechanism, applied centrally.

python -m peers.pfl_peer --task cnn --processes 2          (in benchmarks/)

Several processes are started by torchrun, as pfl's own guide does. Data are tensors in memory; no metrics are kept.
"""

import functools
import importlib.metadata
import os
import sys

import numpy as np
import tasks
import torch

from peers import torch_models
from peers.contest import Run


def launch(processes: int) -> None:
    """Become torchrun with that many copies of this process."""
    flags = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    os.execv(sys.executable, [sys.executable, *flags, "-m", "peers.pfl_peer", *sys.argv[1:]])


def share_one_gpu() -> None:
    """Let the copies use one GPU together: pfl gives each its own, and NCCL refuses two of its ranks on one."""
    os.environ["LOCAL_RANK"] = "0"
    torch.distributed.init_process_group = functools.partial(_init_gloo, torch.distributed.init_process_group)


def _init_gloo(init, **_: str) -> None:
    init(backend="gloo")


def train(run: Run, device: str) -> None:
    """Federated averaging, as pfl would have it written."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDatasetBase
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.internal.ops.pytorch_ops import distributed
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel
    from pfl.privacy.gaussian_mechanism import GaussianMechanism
    from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism

    task = run.task
    inputs, targets = torch_models.population(task, device)
    module = torch_models.build(task, device)

    class Watch(TrainingProcessCallback):
        def after_central_iteration(self, *_, **__):
            torch_models.finish(device)
            run.round_done(lambda: torch_models.read(task, module.state_dict()))
            return False, Metrics()

    class Cohorts(FederatedDatasetBase):
        def __init__(self):
            super().__init__()
            self.cohorts = run.cohorts()

        def __next__(self):
            raise NotImplementedError

        def get_cohort(self, cohort_size):
            share = slice(distributed.global_rank, cohort_size, distributed.world_size)
            for client in next(self.cohorts)[share]:
                yield Dataset([inputs[client], targets[client]], user_id=str(client)), self._get_seed()

    clients = Cohorts()
    mechanism = GaussianMechanism(clipping_bound=task.clip, relative_noise_stddev=task.noise_multiplier)
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=run.options.rounds,
            evaluation_frequency=run.options.rounds + 1,
            train_cohort_size=run.cohort,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(
            training_data=clients,
            val_data=clients,
            postprocessors=[CentrallyAppliedPrivacyMechanism(mechanism)] if run.options.private else [],
        ),
        model=PyTorchModel(
            model=module,
            local_optimizer_create=torch.optim.SGD,
            central_optimizer=torch.optim.SGD(module.parameters(), lr=task.server_rate),
        ),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=task.client_rate, local_batch_size=task.batch
        ),
        callbacks=[Watch()],
        send_metrics_to_platform=False,
    )


def main() -> None:
    """Train, report."""
    run = Run("pfl")
    processes, launched = run.options.processes, "TORCHELASTIC_RUN_ID" in os.environ
    if processes > 1 and not launched:
        launch(processes)
    device = torch_models.device_name(run.options.device)
    os.environ["PFL_PYTORCH_DEVICE"] = device
    if launched and device == "cuda":
        share_one_gpu()
    torch.set_num_threads(run.options.threads)
    np.random.seed(tasks.SEED)  # noqa: NPY002 - pfl draws from numpy's global state
    train(run, device)
    if os.environ.get("RANK", "0") == "0":
        run.report(f"pfl {importlib.metadata.version('pfl')}, torch {torch.__version__}")


if __name__ == "__main__":
    main()
