"""Which examples an inspection reads: criteria that each client evaluates on its own data, and arms built from them.

An example belongs to the first arm whose criterion it meets, so no example is in two arms. A client that is not
eligible (too few mistakes, accuracy outside the range) has a mask of zeros and contributes nothing.

Which clients take part is an assumption of the guarantee:

=============  ==============================================================================================
`zero_fill`    (default) everyone takes part and clients in no arm add zeros: the size of an arm stays private
`eligible`     as in the papers: only clients in an arm take part, and their identity and number count as public
=============  ==============================================================================================
"""

from blindsight.selection.arms import ASSUMED, FORMINGS, Arms, Forming, by_accuracy, by_correctness
from blindsight.selection.criteria import Criterion, Of, correct, everything, mistakes, where
from blindsight.selection.observing import accuracies, coded, observe

__all__ = ["Arms", "Criterion", "Forming", "Of", "by_accuracy", "by_correctness", "coded", "correct", "everything"]
__all__ += ["ASSUMED", "FORMINGS", "accuracies", "mistakes", "observe", "where"]
