from .dp_fedavg import AdaptiveClip as AdaptiveClip, Algorithm as Algorithm, PureStep as PureStep, State as State
from .dp_fedavg import dp_fedavg as dp_fedavg
