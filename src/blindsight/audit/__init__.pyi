from .canaries import Canaries as Canaries, secret_sharer as secret_sharer
from .exposure import exposures as exposures, ranks as ranks, references as references
from .extraction import extracted as extracted
from .membership import client_scores as client_scores, direction_scores as direction_scores
from .one_run import LowerBound as LowerBound, lower_bound as lower_bound
from .planting import Planted as Planted, direction_clients as direction_clients, joined as joined
from .report import AuditReport as AuditReport
