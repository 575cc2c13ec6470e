"""Where clients' updates are computed and summed. Simulation and deployment differ only here."""

from blindsight.backends.cohort import Backend, Batch, ClientUpdate, Cohort, Examples
from blindsight.backends.debug import Debug
from blindsight.backends.placement import use_cores
from blindsight.backends.simulation import Simulation

__all__ = ["Backend", "Batch", "ClientUpdate", "Cohort", "Debug", "Examples", "Simulation", "use_cores"]
