from . import (
    accounting as accounting,
    algorithms as algorithms,
    asking as asking,
    audit as audit,
    backends as backends,
    config as config,
    data as data,
    errors as errors,
    evaluation as evaluation,
    fidelity as fidelity,
    fleet as fleet,
    inspect as inspect,
    inspection as inspection,
    jobs as jobs,
    keys as keys,
    mechanisms as mechanisms,
    models as models,
    participation as participation,
    runs as runs,
    selection as selection,
    service as service,
    students as students,
    studio as studio,
    synthesizing as synthesizing,
    training as training,
    trees as trees,
)
from .accounting.guarantee import Guarantee as Guarantee
from .accounting.ledger import Ledger as Ledger
from .asking import ask as ask
from .fleet.asking import fleet_of as fleet_of
from .privacy import Plan as Plan, Privacy as Privacy, plan as plan
from .synthesizing import synthesize as synthesize

__version__: str
