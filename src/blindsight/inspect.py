"""Questions about data that nobody may look at: `bs.inspect.slices(clients, model=..., epsilon=8, delta=1e-6)`."""

from blindsight.inspection.bias.task import bias
from blindsight.inspection.contrast.asking import Training
from blindsight.inspection.contrast.findings import Diagnosis, Finding
from blindsight.inspection.contrast.task import Quarters, contrast
from blindsight.inspection.contrast.tasks import mistakes, sanity, slices
from blindsight.inspection.labelling.task import labelling
from blindsight.inspection.report import Report
from blindsight.inspection.unknowns.models import WordTraining
from blindsight.inspection.unknowns.task import unknowns

__all__ = ["Diagnosis", "Finding", "Quarters", "Report", "Training", "WordTraining", "bias", "contrast", "labelling"]
__all__ += ["mistakes", "sanity", "slices", "unknowns"]
