from .ask import run_ask as run_ask
from .audit import run_audit as run_audit
from .inspect import (
    run_bias as run_bias,
    run_labelling as run_labelling,
    run_mistakes as run_mistakes,
    run_sanity as run_sanity,
    run_slices as run_slices,
)
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
from .student import load_student as load_student, run_student as run_student
from .synthesize import run_synthesize as run_synthesize
from .train import load_trained as load_trained, run_training as run_training
from .tune import run_tuning as run_tuning
from .unknowns import run_unknowns as run_unknowns
