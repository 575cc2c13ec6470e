from .accountants import Bound as Bound, delta as delta, epsilon as epsilon
from .events import Event as Event, Relation as Relation, Unit as Unit
from .guarantee import Guarantee as Guarantee, certify as certify
from .planning import (
    group_privacy as group_privacy,
    rounds_for as rounds_for,
    solve_noise as solve_noise,
    split_noise as split_noise,
)
