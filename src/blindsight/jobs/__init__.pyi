from .audit import run_audit as run_audit
from .bias import run_bias as run_bias
from .inspect import load_model as load_model, run_inspection as run_inspection
from .student import load_student as load_student, run_student as run_student
from .train import load_trained as load_trained, run_training as run_training
from .tune import run_tuning as run_tuning
from .unknowns import run_unknowns as run_unknowns
