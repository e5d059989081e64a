"""fusedmax and oscarmax against sparsemax, forward + backward.

    python -m benchmarks.group_maps

On 64 rows of 50 and 3200 rows of 50. Old implementations in Python loops took about 11 ms
(fusedmax) and 18 ms (oscarmax) for the first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor

import fenchel as fy
from benchmarks.reporting import announce
from benchmarks.timing import interleave

MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    "sparsemax": fy.sparsemax,
    "fusedmax": fy.fusedmax,
    "oscarmax": fy.oscarmax,
    "sq_pnorm_max": fy.sq_pnorm_max,
}


def gate(x: Tensor) -> None:
    for name, map_ in MAPS.items():
        with fy.use_backend("reference"):
            truth = map_(x.double())
        error = (map_(x).double() - truth).abs().max().item()
        if not error <= 1e-6:
            raise SystemExit(f"correctness gate is red: {name} is off by {error:.1e}")


def training(map_: Callable[[Tensor], Tensor], x: Tensor, grad: Tensor) -> Callable[[], object]:
    leaf = x.clone().requires_grad_()

    def run() -> object:
        leaf.grad = None
        return map_(leaf).backward(grad)

    return run


def main() -> None:
    announce()
    for rows in (64, 3200):
        x, grad = torch.randn(rows, 50), torch.randn(rows, 50)
        gate(x)
        times = interleave({name: training(f, x, grad) for name, f in MAPS.items()}, 3.0)
        for name, seconds in times.items():
            ratio = seconds / times["sparsemax"]
            print(f"{rows:5d} x 50  {name:>13} {1e3 * seconds:7.3f} ms  {ratio:5.2f} x sparsemax")


if __name__ == "__main__":
    sys.exit(main())
