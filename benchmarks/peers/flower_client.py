"""The client's half of `flower_peer.py`, a module of its own so that Ray's actors import it and keep what they made."""

import functools

import tasks
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import fixedclipping_mod
from torch import nn

from peers import torch_models

population = functools.cache(torch_models.population)
build = functools.cache(torch_models.build)


def app(private: bool) -> ClientApp:
    """The app that each virtual client runs; a private one clips its update."""
    client_app = ClientApp(mods=[fixedclipping_mod] if private else None)
    client_app.train()(train)
    return client_app


def train(message: Message, _: Context) -> Message:
    """One pass over the batches of the client named in the message."""
    config = message.content["config"]
    task, device = tasks.TASKS[config["task"]], config["device"]
    torch.set_num_threads(config["threads"])
    model: nn.Module = build(task, device)
    inputs, targets = population(task, device)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=task.client_rate)
    for batch in torch_models.batches(task, inputs[config["client"]], targets[config["client"]]):
        optimizer.zero_grad()
        model.loss(*batch).backward()
        optimizer.step()
    metrics = MetricRecord({"num-examples": task.examples})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)
