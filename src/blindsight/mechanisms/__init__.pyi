from .argmax import NoisyArgmax as NoisyArgmax, noisy_argmax as noisy_argmax
from .gaussian_mechanism import GaussianMechanism as GaussianMechanism, gaussian as gaussian
from .laplace_mechanism import LaplaceMechanism as LaplaceMechanism, laplace as laplace
from .quantiles import Quantile as Quantile, QuantileEstimate as QuantileEstimate, quantile as quantile
from .release import Mechanism as Mechanism, Release as Release, publish as publish
from .unprotected import WithoutNoise as WithoutNoise, without_noise as without_noise
from .tallies import Tally as Tally, Votes as Votes, votes as votes
