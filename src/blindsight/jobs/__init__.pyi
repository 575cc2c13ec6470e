from .ask import run_ask as run_ask
from .audit import run_audit as run_audit
from .export import run_export as run_export
from .hosts import run_on_hosts as run_on_hosts
from .inspect import (
    run_bias as run_bias,
    run_labelling as run_labelling,
    run_mistakes as run_mistakes,
    run_sanity as run_sanity,
    run_slices as run_slices,
)
from .mlflow_export import run_mlflow_export as run_mlflow_export
from .models import load_model as load_model
from .request import (
    AskRequest as AskRequest,
    BiasRequest as BiasRequest,
    LabellingRequest as LabellingRequest,
    MistakesRequest as MistakesRequest,
    SanityRequest as SanityRequest,
    SlicesRequest as SlicesRequest,
    SynthesizeRequest as SynthesizeRequest,
    UnknownsRequest as UnknownsRequest,
)
from .run_list import list_runs as list_runs
from .student import load_student as load_student, run_student as run_student
from .synthesize import run_synthesize as run_synthesize
from .train import load_trained as load_trained, run_training as run_training
from .tune import run_tuning as run_tuning
from .unknowns import run_unknowns as run_unknowns
