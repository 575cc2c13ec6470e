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
    from peers import pfl_training  # now that it can find its device and its other processes

    pfl_training.train(run, device)
    if os.environ.get("RANK", "0") == "0":
        run.report(f"pfl {importlib.metadata.version('pfl')}, torch {torch.__version__}")


if __name__ == "__main__":
    main()
