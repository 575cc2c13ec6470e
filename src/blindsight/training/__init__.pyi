from .by_rounds import Trained as Trained, train as train
from .loop import machine as machine
from .settings import Checkpointing as Checkpointing, Evaluation as Evaluation, RunTerms as RunTerms
