from .generators import GivenGenerator as GivenGenerator, OneShot as OneShot, TrainedPrivately as TrainedPrivately
from .party import Party as Party
from .voters import (
    GivenModel as GivenModel,
    OnMade as OnMade,
    OnRawData as OnRawData,
    PrivateLinear as PrivateLinear,
    PrivateNetwork as PrivateNetwork,
)
