"""What a map is, declared once beside its function: :class:`Map`.

Its module, its place among the normalizers of models, the sentences about a wrong parameter, the
tables of the docs and the shared tests all follow from the declaration.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import (
    FenchelError,
    as_number,
    check_mask,
    check_parameter_tensor,
    check_scores,
)
from fenchel._dtypes import HALF, Parameter
from fenchel._guarded import below_top
from fenchel.maps._family import RowMap

__all__ = ["GAMMA", "MAPS", "Argument", "Map", "declare"]


@dataclass(frozen=True)
class Argument:
    """A number that a map takes beside its scores: what it may be, and what it means.

    Attributes:
        keyword: its name in the call.
        default: the number that is taken without it.
        low: the smallest number allowed, or with ``above`` the largest one that is not.
        high: the largest number allowed; with ``finite`` any number below ∞.
        above: whether ``low`` itself is refused.
        finite: whether ∞ is refused.
        up_to_entries: whether it may be at most the number of entries of a row.
        meaning: of special values, in brackets, as messages and tables say it.
        per_row: whether it may be a tensor with one value per row, which may want a gradient.
        examples: numbers that tests try beside the default.
        rough: those of them at which the map has kinks too close to each other for finite
            differences, or does not move at all.
    """

    keyword: str
    default: float
    low: float
    high: float = math.inf
    above: bool = False
    finite: bool = False
    up_to_entries: bool = False
    meaning: str = ""
    per_row: bool = True
    examples: tuple[float, ...] = ()
    rough: tuple[float, ...] = ()

    @property
    def range(self) -> str:
        """The numbers allowed, as an interval."""
        left = "(" if self.above else "["
        if self.up_to_entries:
            return f"{left}{self.low:g}, n]"
        top = "∞" if self.high == math.inf else f"{self.high:g}"
        return f"{left}{self.low:g}, {top}{')' if self.finite else ']'}"

    @property
    def expected(self) -> str:
        """What a number must be: the rest of a sentence."""
        if self.high < math.inf:
            text = f"in {self.range}"
        elif self.finite:
            text = f"a finite number {'above' if self.above else 'of at least'} {self.low:g}"
        else:
            text = f"{'above' if self.above else 'at least'} {self.low:g}"
        return f"{text} {self.meaning}".rstrip()

    def number(self, name: str, value: Any, kind: str = "a number") -> float:
        """Check that ``value`` is a number (NumPy's count) that the map takes."""
        if type(value) is float and self.low < value < self.high:  # most often
            return value
        number = as_number(name, self.keyword, value, kind)
        low = self.low < number if self.above else self.low <= number
        if not (low and number <= self.high) or (self.finite and number == math.inf):
            raise FenchelError(f"{name}: `{self.keyword}` must be {self.expected}; got {value!r}.")
        return number

    def rows(self, name: str, value: Any, scores: Tensor, dim: int) -> Parameter:
        """Check a number, or a tensor with one value per row; it gets the rank of ``scores``."""
        if not self.per_row:
            return self.number(name, value)
        if isinstance(value, Tensor):
            return check_parameter_tensor(name, self.keyword, value, scores, dim)
        number = self.number(name, value, "a number or a torch.Tensor")
        if self.up_to_entries:
            entries = scores.shape[dim] if scores.dim() else 1
            if number > entries:
                raise FenchelError(
                    f"{name}: `{self.keyword}` must be at most the {entries} entries along dim "
                    f"{dim}; got {number:g}."
                )
        return number


#: The temperature of every map, f(scores / gamma): the weight γ of its regularizer γΩ.
GAMMA = Argument("gamma", 1.0, low=0.0, above=True, finite=True)


@dataclass(frozen=True)
class Map:
    """A public map from scores to probabilities, as everything else in the library sees it.

    Attributes:
        name: that of the function.
        function: the public function, ``(scores, [parameter,] dim, *, mask, gamma)``.
        family: what computes it.
        summary: what it is, a line for tables.
        argument: its parameter, or None.
        fixed: the parameter of the family, for a map that has none of its own.
        omega: the class of its Ω in ``fenchel.regularizers``, or "" if it has none.
        margin: parameter to the lead from which on the answer is one-hot; ∞ if there is none.
        symmetric: whether the order of the entries does not matter, so that equal scores get equal
            probabilities.
        sparse: whether low scores get exactly 0 for its parameter.
        mass: parameter to what the entries of a row sum to.
        lengths: whether the function takes ``lengths``.
    """

    name: str
    function: Callable[..., Tensor]
    family: RowMap
    summary: str
    argument: Argument | None = None
    fixed: float = 1.0
    omega: str = ""
    margin: Callable[[float], float] = lambda parameter: math.inf
    symmetric: bool = True
    sparse: Callable[[float], bool] = lambda parameter: True
    mass: Callable[[float], float] = lambda parameter: 1.0
    lengths: bool = False

    @property
    def default(self) -> float:
        """The parameter of the family that is taken without another one."""
        return self.fixed if self.argument is None else self.argument.default

    def run(
        self,
        scores: Tensor,
        value: Any,
        dim: int,
        mask: Tensor | None,
        gamma: Any = 1.0,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Check the arguments of a call, mask, and run the family in float32 or float64.

        As in torch.softmax, a number is a row of one entry, and a row may have none.
        """
        name = self.name
        dim = check_scores(name, scores, dim, may_be_empty=True)
        if mask is not None:
            check_mask(name, mask, scores)
            scores = scores.masked_fill(~mask, -math.inf)
        if scores.dim() == 0:
            return self.run(scores.unsqueeze(0), value, 0, None, gamma, lengths).squeeze(0)
        if lengths is not None:
            scores = scores.masked_fill(~_within(name, lengths, scores, dim), -math.inf)
        argument = self.argument
        parameter = self.fixed if argument is None else argument.rows(name, value, scores, dim)
        is_one = type(gamma) is float and gamma == 1  # most often
        scale = 1.0 if is_one else GAMMA.rows(name, gamma, scores, dim)
        if scores.shape[dim] == 0:
            return scores.clone()
        is_half = scores.dtype in HALF
        wide = scores.float() if is_half else scores
        if isinstance(scale, Tensor) or scale != 1:
            wide = (below_top(wide, dim) / scale).to(wide.dtype)
        p = self.family(wide, parameter, dim)
        if not is_half:
            return p
        # torch.softmax gives float32 under CUDA's autocast; so do we, to be swapped in anywhere.
        if scores.device.type == "cuda" and torch.is_autocast_enabled("cuda"):
            return p
        return p.to(scores.dtype)


#: Every map of the library by name.
MAPS: dict[str, Map] = {}


def declare(*args: Any, **kwargs: Any) -> Map:
    """Make a :class:`Map` and enter it into ``MAPS``."""
    made = Map(*args, **kwargs)
    MAPS[made.name] = made
    return made


def _within(name: str, lengths: Any, scores: Tensor, dim: int) -> Tensor:
    """True for the first ``lengths`` entries of each row."""
    rows = scores.shape[:dim] + scores.shape[dim + 1 :]
    fits = isinstance(lengths, Tensor) and not lengths.is_floating_point()
    if not fits or lengths.dtype == torch.bool or lengths.shape not in (rows, rows[:1]):
        got = tuple(lengths.shape) if isinstance(lengths, Tensor) else type(lengths).__name__
        raise FenchelError(
            f"{name}: expected `lengths` to be an integer tensor of shape {tuple(rows)} or "
            f"{tuple(rows[:1])}, but got {got}."
        )
    if lengths.dim() < len(rows):
        lengths = lengths.reshape(-1, *(1,) * (len(rows) - 1))
    places = torch.arange(scores.shape[dim], device=scores.device)
    shape = [1] * scores.dim()
    shape[dim] = -1
    return places.reshape(shape) < lengths.to(scores.device).unsqueeze(dim)
