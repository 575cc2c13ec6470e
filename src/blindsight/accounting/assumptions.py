"""Everything that a guarantee may assume, in the words in which it says so.

They are here and nowhere else, so that `docs/privacy.md` can list them all for whoever has to believe them. Names in
braces are filled in by the one who assumes.
"""

__all__ = ["CLASSES_LISTED", "CLASSES_READ_OFF", "CLIPPED", "COIN", "COUNTED", "DISJOINT_ARMS", "ELIGIBLE"]
__all__ += ["FIXED_SIZE", "IDEAL_NOISE", "KEPT_SECRET", "LOCAL_NOISE", "MODEL_OF_OTHERS", "MODEL_UNKNOWN", "NO_CLAIM"]
__all__ += ["NUMBER_PUBLIC", "ONE_WEIGHT", "OTHERS_INDEPENDENT", "PARTIES_APART", "PARTIES_STEADY", "PARTIES_TOLD"]
__all__ += ["PLANNED", "RANDOMISED", "SEED", "TAKES_PART"]

NUMBER_PUBLIC = (
    "the number of {unit}s is public: it is not hidden, and sums may be divided by what follows from it; a {unit} that "
    "is left out leaves an empty place"
)
CLIPPED = "every {unit}'s contribution was clipped to its bound before it left the {unit}'s side"
COIN = "each {unit} took part in each round by its own secret coin, with the stated probability or less"
FIXED_SIZE = "every cohort was drawn uniformly, in secret, at exact size"
NO_CLAIM = "the server claims nothing about how clients come to take part, except the limit per client"
OTHERS_INDEPENDENT = "who else takes part does not depend on whether a client is there"
KEPT_SECRET = (
    "the run's folder 'secret', which counts every client's rounds to keep the limit, is seen by nobody but the server"
)
IDEAL_NOISE = "the noise is ideal: computer arithmetic on it is exact, as only the `exact` sampler ensures"
SEED = (
    "nobody who sees a release knows the seed of this reproducible run, which gives the noise away, and nothing else "
    "was released with it, for equal noise cancels out"
)
RANDOMISED = "each {unit} randomises its own answer, and nobody sees the answer before that"
LOCAL_NOISE = "noise is drawn exactly, on the client"
TAKES_PART = "that a client takes part, and when, is not hidden"
ONE_WEIGHT = "an observer looks at one weight only: all {weights} together cost up to that many times as much"
DISJOINT_ARMS = "no client is in two arms of the split {split} ({rule})"
PLANNED = "which releases were made, and with how much noise, was not decided by earlier results"
CLASSES_READ_OFF = (
    "which classes there are is public: they were read off the clients' data, for [model] classes does not list them"
)
CLASSES_LISTED = "which classes there are is public, and no name of one is known from clients' data alone"
ELIGIBLE = "which clients are eligible for an arm, and how many they are, is public"
MODEL_UNKNOWN = "the primary model learnt nothing from these clients"
MODEL_OF_OTHERS = "the clients of {population}, whom {model} learnt from, are others"
PARTIES_APART = "no example lies with two parties"
PARTIES_STEADY = "whether and when a party answers does not depend on its examples"
PARTIES_TOLD = "every party writes down and tells all that it releases"
COUNTED = (
    "whoever adds up the votes adds the noise that was said and keeps each party's to themselves: a trusted counter, "
    "or secure aggregation"
)
