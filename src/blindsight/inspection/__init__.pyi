from .contrast.asking import Training as Training
from .contrast.findings import Diagnosis as Diagnosis, Finding as Finding
from .contrast.task import Quarters as Quarters
from .report import Report as Report
from .unknowns.models import WordTraining as WordTraining
