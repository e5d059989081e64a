"""The maps at a glance: ``make demo-maps``, or ``python examples/demo_maps.py``.

Prints which kernels run, what each map makes of the same scores and how long it takes, and draws
the pictures of the papers into ``out/``.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import fenchel as fy

Map = Callable[[Tensor], Tensor]

MAPS: dict[str, Map] = {
    "softmax": fy.softmax,
    "entmax(1.25)": lambda x: fy.entmax(x, 1.25),
    "entmax15": fy.entmax15,
    "sparsemax": fy.sparsemax,
    "entmax(4)": lambda x: fy.entmax(x, alpha=4),
    "normmax(2)": fy.normmax,
    "sq_pnorm(1.5)": fy.sq_pnorm_max,
    "renyimax(.5)": fy.renyimax,
    "budget(k=2)": lambda x: fy.budget(x, k=2),
}
TIMED: dict[str, Map] = {
    "torch.softmax": lambda x: torch.softmax(x, -1),
    "fy.softmax": fy.softmax,
    "fy.sparsemax": fy.sparsemax,
    "fy.entmax15": fy.entmax15,
    "fy.entmax(1.25)": lambda x: fy.entmax(x, 1.25),
}
SHAPES = [(1024, 1024), (64, 32000)]
SECONDS = 2.5  # for each shape


def show_backend() -> None:
    found = fy.backends()
    threads = torch.get_num_threads()
    print(f"fenchel {fy.__version__}, torch {torch.__version__}, threads: {threads}")
    print(f"backend: {found.active}, because {found.reason}")


def show_maps() -> None:
    scores = torch.tensor([2.0, 1.6, 1.0, 0.2, -0.5, -3.0])
    print("\nOne vector of scores, every map (· is exactly 0)\n")
    print(f"  {'scores':<13}" + "".join(f"{x:9.1f}" for x in scores.tolist()) + "   nonzeros")
    for name, map_ in MAPS.items():
        p = map_(scores).tolist()
        cells = "".join(f"{'·' if x == 0 else format(x, '.4f'):>9}" for x in p)
        print(f"  {name:<13}{cells}{sum(x > 0 for x in p):>11}")


def show_speed() -> None:
    print("\nForward and backward, median milliseconds (and ratio to torch.softmax)\n")
    print(f"  {'':<17}" + "".join(f"{'{} x {}'.format(*shape):>20}" for shape in SHAPES))
    columns = [median_times(shape) for shape in SHAPES]
    for name in TIMED:
        cells = (f"{1e3 * t[name]:12.2f} ({t[name] / t['torch.softmax']:5.2f})" for t in columns)
        print(f"  {name:<17}" + "".join(cells))


def median_times(shape: tuple[int, int]) -> dict[str, float]:
    """Median seconds of a forward and a backward pass of each map, run in turns."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(shape, generator=generator).requires_grad_()
    grad = torch.randn(shape, generator=generator)
    times: dict[str, list[float]] = {name: [] for name in TIMED}
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times["torch.softmax"]) < 4:
        for name, map_ in TIMED.items():
            scores.grad = None
            start = time.perf_counter()
            map_(scores).backward(grad)
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values[1:]) for name, values in times.items()}  # 1 to warm up


def show_pictures(directory: Path) -> None:
    try:
        import plot_maps
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        print(
            "\nNo pictures: matplotlib is not installed. Install it with `pip install matplotlib`."
        )
        return
    print("\nPictures")
    for path in plot_maps.draw_all(directory):
        print(f"  {path}")


def main() -> None:
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal without · shows ?
    show_backend()
    show_maps()
    show_speed()
    show_pictures(Path("out"))


if __name__ == "__main__":
    main()
