"""Several processes that train one model: who they are, what they hold, what they tell each other.

One process alone takes the same way through all of this and sends nothing.
"""

from fenchel.training.distributed._parallel import check_parallel, find_device
from fenchel.training.distributed._ranks import Ranks, is_own_restart, join_ranks

__all__ = [
    "Ranks",
    "check_parallel",
    "find_device",
    "is_own_restart",
    "join_ranks",
]
