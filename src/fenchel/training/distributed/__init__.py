"""Several processes that train one model: who they are, what they hold, what they tell each other.

One process alone takes the same way through all of this and sends nothing.
"""

from fenchel.training.distributed._parallel import check_parallel, find_device, make_parallel
from fenchel.training.distributed._random import (
    gather_random,
    load_random,
    load_random_of_rank,
    random_tensors,
    seed_rank,
    sound_states,
)
from fenchel.training.distributed._ranks import (
    Agreement,
    Ranks,
    explain_loss_of,
    is_own_restart,
    join_ranks,
)
from fenchel.training.distributed._tensors import (
    gather_to_write,
    load_optimizer,
    model_tensors,
    optimizer_tensors,
    same_parameters,
)

__all__ = [
    "Agreement",
    "Ranks",
    "check_parallel",
    "explain_loss_of",
    "find_device",
    "gather_random",
    "gather_to_write",
    "is_own_restart",
    "join_ranks",
    "load_optimizer",
    "load_random",
    "load_random_of_rank",
    "make_parallel",
    "model_tensors",
    "optimizer_tensors",
    "random_tensors",
    "same_parameters",
    "seed_rank",
    "sound_states",
]
