"""A model that a command trains on the reference is never compared with the clients it was trained on."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blindsight.inspection.bias.comparison import confirming_half
from blindsight.jobs import inspect as jobs
from blindsight.jobs import request as requests
from blindsight.models.primary import Learnt

TASKS = {
    "sanity": requests.SanityRequest,
    "mistakes": requests.MistakesRequest,
    "slices": requests.SlicesRequest,
    "labelling": requests.LabellingRequest,
    "bias": requests.BiasRequest,
}


class Asked(Exception):
    """Raised where the question would be asked."""


def write(path: Path, clients: int, *, with_label: bool) -> str:
    random = np.random.default_rng(clients)
    header = "client,age" + (",label" if with_label else "")
    rows = [
        f"c{client},{random.integers(20, 60)}" + (f",{random.integers(0, 2)}" if with_label else "")
        for client in range(clients)
        for _ in range(4)
    ]
    path.write_text("\n".join([header, *rows]) + "\n")
    return str(path)


@pytest.mark.parametrize("task", TASKS)
def test_a_model_is_trained_on_public_clients_that_nobody_is_compared_with(task, tmp_path, monkeypatch):
    taught, real, seen = list[Any](), jobs.public_model, dict[str, Any]()

    def train(public: Any, *inputs: Any, **options: Any) -> Any:
        taught.append(set(public.ids.tolist()))
        return real(public, *inputs, **options)

    def ask(clients: Any, **given: Any) -> Any:
        seen.update(given)
        raise Asked

    monkeypatch.setattr(jobs, "public_model", train)
    monkeypatch.setattr(jobs, task, ask)
    ask.__name__ = task
    request = TASKS[task](
        data=write(tmp_path / "clients.csv", 30, with_label=task != "bias"),
        reference=write(tmp_path / "public.csv", 80, with_label=True),
        client="client",
        inputs=["age"],
        types=["age=whole:0:120", "label=whole"],
        ranges=["age=0:120"],
        out=tmp_path / "run",
    )
    with pytest.raises(Asked):
        getattr(jobs, f"run_{task}")(request)
    compared = confirming_half(seen["reference"]) if task == "bias" else seen["reference"]
    (trained,) = taught
    assert len(trained) == len(compared.ids) == 40
    assert not trained & set(compared.ids.tolist())
    assert seen["model"].learnt == Learnt()  # so that nobody is warned about overfitting
