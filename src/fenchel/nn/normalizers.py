"""Maps by name, as settings write them: ``"sparsemax"``, ``"entmax:1.3"``, ``"entmax:learned"``."""

from __future__ import annotations

from typing import NamedTuple

from fenchel._checks import FenchelError
from fenchel.maps.declaration import MAPS, Map
from fenchel.nn import _maps
from fenchel.nn._maps import Entmax, MapModule

LEARNED = "learned"

#: The module of each map, by the name of the map.
MODULES: dict[str, type[MapModule]] = {
    module.map.name: module
    for module in (getattr(_maps, name) for name in _maps.__all__)
    if module is not MapModule
}


class Spec(NamedTuple):
    """A map and its parameter, read from a text.

    Attributes:
        map: its declaration.
        value: the parameter of its family; the default if the text has none.
        learned: whether the parameter is learned.
    """

    map: Map
    value: float
    learned: bool = False

    @property
    def alpha(self) -> float | None:
        """The fixed α of a map of the entmax family; None for others and where it is learned."""
        return self.value if self.map.family.op == "entmax" and not self.learned else None


def read_spec(spec: str) -> Spec:
    """Read ``"name"``, ``"name:number"`` or ``"entmax:learned"``, and check the number."""
    if not isinstance(spec, str):
        raise FenchelError(
            f"normalizer: expected a text such as 'entmax:1.5', but got {type(spec).__name__}."
        )
    name, colon, text = spec.partition(":")
    if name not in MODULES:
        raise FenchelError(
            f"normalizer: expected one of {', '.join(sorted(MODULES))}, maybe with a parameter "
            f"after a colon, but got {spec!r}."
        )
    map_ = MAPS[name]
    if not colon:
        return Spec(map_, map_.default)
    if map_.argument is None:
        raise FenchelError(f"normalizer: expected '{name}' without a parameter, but got '{spec}'.")
    if text == LEARNED and issubclass(MODULES[name], Entmax):
        return Spec(map_, map_.default, learned=True)
    try:
        number = float(text)
    except ValueError:
        raise FenchelError(
            f"normalizer: expected a number after the colon of '{name}:…', but got {text!r}."
        ) from None
    return Spec(map_, map_.argument.number("normalizer", number))


def normalizer(spec: str) -> MapModule:
    """The module of a map by its name, maybe with its parameter after a colon.

    Args:
        spec: the name of a map (``"softmax"``, ``"sparsemax"``, ``"fusedmax"``), with its
            parameter (``"entmax:1.3"``, ``"fusedmax:0.2"``, ``"budget:3"``) or without; or
            ``"entmax:learned"``, whose α = 1 + σ(a) starts at 1.5.

    Returns:
        A module that is called with ``(scores, mask=None)``, mask being True where mass may go.

    Example:
        >>> fy.nn.normalizer("entmax:2")
        Entmax(alpha=2.0, dim=-1)
        >>> fy.nn.normalizer("fusedmax")(torch.tensor([0.2, 0.1, -0.5]))
        tensor([0.5000, 0.5000, 0.0000])
    """
    read = read_spec(spec)
    module = MODULES[read.map.name]
    if read.learned:
        return Entmax(learnable=True)
    if read.map.argument is None:
        return module()
    return module(read.value)
