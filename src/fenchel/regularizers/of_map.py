from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from fenchel.maps.declaration import Argument, Map
from fenchel.regularizers._base import Regularizer


class MapRegularizer(Regularizer):
    """An Ω whose map is declared in :mod:`fenchel.maps`: that says its parameter and its margin.

    A new one names its ``map`` and overrides ``omega_rows`` and ``gradient_rows``, and
    ``slope_rows`` if the parameter may be a tensor. The parameter is an attribute with the keyword
    of the map.
    """

    #: The declaration of the map.
    map: ClassVar[Map]

    def __init__(self, parameter: Any) -> None:
        argument = self._argument
        if not (argument.per_row and isinstance(parameter, Tensor)):
            parameter = argument.number(type(self).__name__, parameter)
        setattr(self, argument.keyword, parameter)
        self._value: float | Tensor = parameter  # the same, whatever it is called

    @property
    def _argument(self) -> Argument:
        assert self.map.argument is not None
        return self.map.argument

    @property
    def margin(self) -> float:
        """The smallest lead of the right score at which the loss is 0; ∞ if there is none.

        That of a tensor is the largest of its values.
        """
        value = self._value
        ends = (value.min(), value.max()) if isinstance(value, Tensor) else (value,)
        return max(self.map.margin(float(end)) for end in ends)  # it is monotone

    @property
    def _parameter(self) -> Tensor | None:
        return self._value if isinstance(self._value, Tensor) else None

    def _aligned(self, name: str, scores: Tensor, dim: int) -> Regularizer:
        value = self._value
        if not isinstance(value, Tensor):
            return self
        rows = self._argument.rows(name, value, scores, dim)
        assert isinstance(rows, Tensor)
        return type(self)(rows.to(scores.device).movedim(dim, -1))

    def predict_rows(self, scores: Tensor) -> Tensor:
        return self.map.run(scores, self._value, -1, None)

    def __repr__(self) -> str:
        value = self._value
        written = f"<{tuple(value.shape)}>" if isinstance(value, Tensor) else f"{value:g}"
        return f"{type(self).__name__}({self._argument.keyword}={written})"
