from .generators import GivenGenerator as GivenGenerator, OneShot as OneShot, TrainedPrivately as TrainedPrivately
from .party import VotingParty as VotingParty
from .voters import (
    GivenModel as GivenModel,
    OnSynthetic as OnSynthetic,
    OnRawData as OnRawData,
    PrivateLinear as PrivateLinear,
    PrivateNetwork as PrivateNetwork,
)
