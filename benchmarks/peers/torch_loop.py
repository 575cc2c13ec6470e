"""The floor and the reference: federated averaging as a plain PyTorch loop, one client after the other.

python -m peers.torch_loop --task cnn          (in benchmarks/)
"""

from collections.abc import Sequence

import tasks
import torch
from torch import nn

from peers import torch_models
from peers.contest import Run


def train_client(model: nn.Module, rate: float, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """One pass of gradient descent over a client's batches."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for inputs, targets in batches:
        optimizer.zero_grad()
        model.loss(inputs, targets).backward()
        optimizer.step()


def clip(update: Sequence[torch.Tensor], bound: float) -> None:
    """Scale the update in place to an L2 norm of at most the bound."""
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(update)))
    torch._foreach_mul_(update, torch.clamp(bound / norm, max=1.0))


def train_round(run: Run, model: nn.Module, data: tuple[torch.Tensor, torch.Tensor], cohort: list[int]) -> None:
    """One round of FedAvg, or of DP-FedAvg."""
    task, inputs, targets = run.task, *data
    parameters = [parameter.detach() for parameter in model.parameters()]  # views: they follow the model
    start = [parameter.clone() for parameter in parameters]
    total = [torch.zeros_like(parameter) for parameter in parameters]
    for client in cohort:
        train_client(model, task.client_rate, torch_models.batches(task, inputs[client], targets[client]))
        update = torch._foreach_sub(parameters, start)
        if run.options.private:
            clip(update, task.clip)
        torch._foreach_add_(total, update)
        torch._foreach_copy_(parameters, start)
    if run.options.private:
        noise = [torch.randn_like(part) for part in total]
        torch._foreach_add_(total, noise, alpha=task.noise_multiplier * task.clip)
    torch._foreach_add_(parameters, total, alpha=task.server_rate / len(cohort))


def main() -> None:
    """Train, report."""
    run = Run("torch")
    device = torch_models.device_name(run.options.device)
    torch.set_num_threads(run.options.threads)
    torch.manual_seed(tasks.SEED)
    model = torch_models.build(run.task, device)
    data = torch_models.population(run.task, device)
    for cohort in run.cohorts():
        train_round(run, model, data, cohort)
        torch_models.finish(device)
        run.round_done(lambda: torch_models.read(run.task, model.state_dict()))
    run.report(f"torch {torch.__version__}")


if __name__ == "__main__":
    main()
