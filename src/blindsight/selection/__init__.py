"""Who and what an inspection looks at: criteria that every client evaluates on its own data, and arms made of them.

An example belongs to the first arm whose criterion it meets, so no example is in two. A client that is not eligible
(too few mistakes, another accuracy) has a mask of zeros and adds exactly nothing.

How the clients of an arm come together is part of the guarantee:

=============  ==============================================================================================
`zero_fill`    (default) everyone takes part, clients in no arm add zeros: how large an arm is stays private
`eligible`     the papers': only clients in an arm take part, and who and how many they are is taken as public
=============  ==============================================================================================
"""

from blindsight.selection.arms import ASSUMED, FORMINGS, Arms, Forming, by_accuracy, by_correctness
from blindsight.selection.criteria import Criterion, Of, correct, everything, mistakes, where
from blindsight.selection.observing import accuracies, coded, observe

__all__ = ["Arms", "Criterion", "Forming", "Of", "by_accuracy", "by_correctness", "coded", "correct", "everything"]
__all__ += ["ASSUMED", "FORMINGS", "accuracies", "mistakes", "observe", "where"]
