from .coordinator import Coordinator as Coordinator
from .identities import Party as Party, Signer as Signer, signer as signer
from .refusals import Reason as Reason, Refused as Refused
from .rounds import RoundBook as RoundBook, Rounds as Rounds
from .site import Site as Site
from .terms import Terms as Terms
