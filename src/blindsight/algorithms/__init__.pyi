from .dp_fedavg import AdaptiveClip as AdaptiveClip, Algorithm as Algorithm, State as State, dp_fedavg as dp_fedavg
