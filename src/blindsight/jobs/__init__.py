"""What long commands do, from their options to what they leave in a folder."""

from blindsight.jobs.inspect import load_model, run_inspection
from blindsight.jobs.train import run_training

__all__ = ["load_model", "run_inspection", "run_training"]
