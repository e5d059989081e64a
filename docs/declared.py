"""Parts of the pages that follow from declarations: nobody has to remember a new map or Ω there.

A line ``.. declared: functions`` (``<!-- declared: table -->`` in Markdown) stands for them.
"""

from __future__ import annotations

import math
import re

import fenchel
from fenchel.maps.declaration import MAPS, Map
from fenchel.nn.normalizers import MODULES
from fenchel.regularizers.registry import REGULARIZERS


def functions(page: str) -> str:
    """The maps, those with groups last."""
    order = sorted(MAPS.values(), key=lambda declared: (declared.lengths, declared.name))
    return "\n\n".join(f".. autofunction:: fenchel.{declared.name}" for declared in order)


def modules(page: str) -> str:
    learned = {"Entmax": "alpha, forward, reset_parameters"}
    names = sorted(module.__name__ for module in MODULES.values())
    return "\n\n".join(
        f".. autoclass:: fenchel.nn.{name}\n   :members: {learned.get(name, 'forward')}"
        for name in names
    )


def regularizers(page: str) -> str:
    names = sorted(omega.__name__ for omega in REGULARIZERS.values())
    return "\n\n".join(f".. autoclass:: fenchel.{name}" for name in names)


def structures(page: str) -> str:
    """The structures that the page does not name otherwise."""
    found = []
    for name in fenchel.structures.__all__:
        if f":: fenchel.{name}\n" not in page:
            is_one = issubclass(getattr(fenchel, name), fenchel.Structure)
            members = "\n   :members: enumerate" if is_one else ""
            found.append(f".. autoclass:: fenchel.{name}{members}")
    return "\n\n".join(found)


def table(page: str) -> str:
    """All maps in a Markdown table."""
    rows = [_row(declared) for _, declared in sorted(MAPS.items())]
    head = "| map | what it is | parameter | zeros | margin | Ω |\n|---|---|---|---|---|---|"
    return "\n".join([head, *rows])


def _row(declared: Map) -> str:
    argument, value = declared.argument, declared.default
    parameter = "" if argument is None else f"`{argument.keyword}` in {argument.range}, {value:g}"
    margin = declared.margin(value)
    return " | ".join(
        [
            f"| {{func}}`fy.{declared.name} <fenchel.{declared.name}>`",
            declared.summary,
            parameter,
            "yes" if declared.sparse(value) else "no",
            "" if margin == math.inf else f"{margin:g}",
            f"{{class}}`~fenchel.{declared.omega}` |" if declared.omega else "|",
        ]
    )


PARTS = {
    "functions": functions,
    "modules": modules,
    "regularizers": regularizers,
    "structures": structures,
    "table": table,
}


def expand(text: str) -> str:
    """A page with its declared parts filled in."""
    marker = re.compile(r"^(?:\.\. declared: (\w+)|<!-- declared: (\w+) -->)$", re.MULTILINE)
    return marker.sub(lambda found: PARTS[found[1] or found[2]](text), text)
