"""The training of `pfl_peer.py`, apart because pfl chooses its device and joins its other processes on import."""

from collections.abc import Iterator

import torch
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
from torch import nn

from peers import torch_models
from peers.contest import Run


class Cohorts(FederatedDatasetBase):
    """The tasks' cohorts, dealt out among the processes as pfl does."""

    def __init__(self, run: Run, data: tuple[torch.Tensor, torch.Tensor]) -> None:
        super().__init__()
        self.cohorts, self.data = run.cohorts(), data

    def __next__(self) -> tuple[Dataset, int]:
        raise NotImplementedError("clients come in cohorts")

    def get_cohort(self, cohort_size: int) -> Iterator[tuple[Dataset, int]]:
        """This process's clients of the next round."""
        share = slice(distributed.global_rank, cohort_size, distributed.world_size)
        for client in next(self.cohorts)[share]:
            yield Dataset([part[client] for part in self.data], user_id=str(client)), self._get_seed()


class Watch(TrainingProcessCallback):
    """Tells the clock when a round is done."""

    def __init__(self, run: Run, model: nn.Module, device: str) -> None:
        self.run, self.model, self.device = run, model, device

    def after_central_iteration(self, *_, **__) -> tuple[bool, Metrics]:
        """Go on, with nothing to log."""
        torch_models.finish(self.device)
        self.run.round_done(lambda: torch_models.read(self.run.task, self.model.state_dict()))
        return False, Metrics()


def train(run: Run, device: str) -> None:
    """Federated averaging, as pfl would have it written."""
    task = run.task
    model = torch_models.build(task, device)
    clients = Cohorts(run, torch_models.population(task, device))
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
            model=model,
            local_optimizer_create=torch.optim.SGD,
            central_optimizer=torch.optim.SGD(model.parameters(), lr=task.server_rate),
        ),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=task.client_rate, local_batch_size=task.batch
        ),
        callbacks=[Watch(run, model, device)],
        send_metrics_to_platform=False,
    )
