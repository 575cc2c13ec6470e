"""Every assumption a guarantee may make, in the words it uses.

They are here and nowhere else, so that `docs/privacy.md` can list them all. The caller fills in names in braces.
"""

__all__ = ["CLASSES_LISTED", "CLASSES_READ_OFF", "CLIPPED", "COIN", "COUNTED", "DISJOINT_ARMS", "ELIGIBLE"]
__all__ += ["FIXED_SIZE", "IDEAL_NOISE", "KEPT_SECRET", "LOCAL_NOISE", "MODEL_OF_OTHERS", "MODEL_UNKNOWN"]
__all__ += ["NOISE_SHARES", "NO_CLAIM"]
__all__ += ["NUMBER_PUBLIC", "ONE_WEIGHT", "OTHERS_INDEPENDENT", "PARTIES_APART", "PARTIES_STEADY", "PARTIES_TOLD"]
__all__ += ["PLANNED", "PRIVATE_NETWORK", "RANDOMISED", "SECURE_SUM", "SEED", "SITES_APART", "TAKES_PART"]
__all__ += ["TRUSTED_WITH_NAMES", "TRUSTED_WITH_PARTS", "TRUSTED_WITH_SUMS", "TYPES_READ_OFF"]

NUMBER_PUBLIC = (
    "the number of {unit}s is public: it is not hidden, and sums may be divided by numbers derived from it; a {unit} "
    "that is left out leaves an empty place"
)
CLIPPED = "every {unit}'s contribution was clipped to its bound before it left the {unit}'s side"
COIN = "each {unit} took part in each round by its own secret coin, with the stated probability or less"
FIXED_SIZE = "every cohort was drawn uniformly, in secret, at exact size"
NO_CLAIM = "the server claims nothing about how clients come to take part, except the limit per client"
OTHERS_INDEPENDENT = "who else takes part does not depend on whether a client is there"
KEPT_SECRET = (
    "the run's folder 'secret', which counts every client's rounds to keep the limit, is seen by nobody but the server"
)
PRIVATE_NETWORK = (
    "nobody reads the traffic between the run's hosts, which carries sums before noise and is not encrypted"
)
IDEAL_NOISE = "the noise is ideal: floating-point arithmetic on it is exact, which only the `exact` sampler ensures"
SEED = (
    "nobody who sees a release knows the seed of this reproducible run, which reveals the noise, and nothing else "
    "was released with it, because equal noise cancels out"
)
RANDOMISED = "each {unit} randomises its own answer, and nobody sees the answer before that"
TRUSTED_WITH_NAMES = (
    "the server that adds up words is trusted: it sees the words of each {unit} before noise is added, forgets those "
    "below the threshold, and draws the noise; secure aggregation cannot add up words that no list names"
)
NOISE_SHARES = (
    "each site draws its own share of the noise, exactly and in secret, except at most {colluding} of the {sites} "
    "sites, and the site that holds the {unit} is not one of these"
)
SECURE_SUM = (
    "nobody sees one site's part of a sum: sites know each other's certificates beforehand, unmask no sum of fewer "
    "than {fewest} sites and each sum once, and nobody breaks X25519, ChaCha20, SHA-256 or the sites' signatures"
)
TRUSTED_WITH_SUMS = (
    "the coordinator is trusted with sums before noise: it sees them over all sites, draws the noise, and discloses "
    "nothing else; sites know each other's certificates beforehand and unmask each sum once"
)
TRUSTED_WITH_PARTS = (
    "the coordinator, and whoever runs the server between it and the sites, are trusted with the numbers of every site "
    "before noise, because so few sites cannot mask them; the coordinator draws the noise, and nobody alters a number"
)
SITES_APART = (
    "no client has data at two sites: sites cannot tell, and somebody with data at k sites moves a sum k times"
)
LOCAL_NOISE = "noise is drawn exactly, on the client"
TAKES_PART = "whether and when a client takes part is not hidden"
ONE_WEIGHT = "an observer looks at one weight only: all {weights} together cost up to that many times as much"
DISJOINT_ARMS = "no client is in two arms of the split {split} ({rule})"
PLANNED = "which releases were made, and with how much noise, did not depend on earlier results"
CLASSES_READ_OFF = (
    "the list of classes is public: it was read off the clients' data, because [model] classes does not give it"
)
CLASSES_LISTED = "the list of classes is public, and no class name comes from clients' data alone"
TYPES_READ_OFF = "the types of fields are public: they were read off the clients' table, because none were given"
ELIGIBLE = "which clients are eligible for an arm, and how many they are, is public"
MODEL_UNKNOWN = "the primary model was not trained on these clients"
MODEL_OF_OTHERS = "the clients of {population}, on which {model} was trained, are different clients"
PARTIES_APART = "no two parties hold the same example"
PARTIES_STEADY = "whether and when a party answers does not depend on its examples"
PARTIES_TOLD = "every party records and reports everything it releases"
COUNTED = (
    "the counter of the votes adds the stated noise and discloses no party's votes: it "
    "is trusted, or secure aggregation"
)
