"""Drop-in for the ``entmax`` package: change the import, keep the code.

Names, order of arguments, defaults and return types are those of ``entmax`` 1.3, and
``return_support_size`` is that of its development version. Three arguments steer the package's
algorithms, which sort part of a row or bisect. Here every answer is exact, so they are checked and
have no effect: ``k`` (a positive int or None), ``n_iter`` (a positive int or None) and
``ensure_sum_one`` (True or False).

What is different in the maps, on purpose:

- ``alpha=1`` is softmax (the package's answer there is uniform), an alpha of 0 or less is refused
  (in a tensor it makes its rows NaN), and a large alpha is as exact as a small one;
- ``normmax_bisect`` and ``budget_bisect`` have a gradient in a tensor ``alpha`` or ``budget``, and
  a module's may be a ``Parameter``;
- ``k`` goes with every ``dim``, and a fully masked row (all ``-inf``) gives zeros, not NaN or an
  error;
- the support counts the probabilities above 0, so a score exactly on the threshold is not in it.

What is different in the losses, on purpose:

- they have a second derivative, and a gradient in a tensor ``alpha``, which a module may hold as a
  ``Parameter``;
- an ``alpha`` of shape (n, 1) is one a row and gives n losses (the package gives n × n numbers);
- ``alpha=1`` is cross-entropy, or the perceptron loss for ``normmax_bisect_loss`` (the package
  gives NaN for the former), and an alpha of 0 or less is refused (below 1, for ``normmax``);
- a loss is never negative, not even by rounding; a score of ``-inf`` on a wrong class changes
  nothing, and on the right one the loss is ``inf`` with a finite gradient (the package gives NaN);
- a module ignores the rows of ``ignore_index`` whatever that is, a class or not, below 0 or not
  (the package then fails on them), and their scores may be NaN;
- in half precision the mean is taken in float32, so that its sum cannot overflow;
- scores may have any number of leading dimensions, of which ``target`` has the shape.
"""

from fenchel.integrations.entmax._losses import (
    Entmax15Loss,
    EntmaxBisectLoss,
    NormmaxBisectLoss,
    SparsemaxBisectLoss,
    SparsemaxLoss,
    entmax15_loss,
    entmax_bisect_loss,
    normmax_bisect_loss,
    sparsemax_bisect_loss,
    sparsemax_loss,
)
from fenchel.integrations.entmax._maps import (
    BudgetBisect,
    Entmax15,
    EntmaxBisect,
    NormmaxBisect,
    Sparsemax,
    SparsemaxBisect,
    budget_bisect,
    entmax15,
    entmax_bisect,
    normmax_bisect,
    sparsemax,
    sparsemax_bisect,
)

__all__ = [
    "BudgetBisect",
    "Entmax15",
    "Entmax15Loss",
    "EntmaxBisect",
    "EntmaxBisectLoss",
    "NormmaxBisect",
    "NormmaxBisectLoss",
    "Sparsemax",
    "SparsemaxBisect",
    "SparsemaxBisectLoss",
    "SparsemaxLoss",
    "budget_bisect",
    "entmax15",
    "entmax15_loss",
    "entmax_bisect",
    "entmax_bisect_loss",
    "normmax_bisect",
    "normmax_bisect_loss",
    "sparsemax",
    "sparsemax_bisect",
    "sparsemax_bisect_loss",
    "sparsemax_loss",
]
