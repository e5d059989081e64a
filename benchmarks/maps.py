"""Simplex maps against torch.softmax and the ``entmax`` package.

    python -m benchmarks.maps [--out FILE.jsonl] [--markdown FILE.md] [--quick] [--peers]

Every row is checked against the float64 reference before it is timed. A ratio below 1 means that
fenchel is faster than ``torch.softmax`` on the same tensor.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor

import fenchel as fy
from benchmarks.reporting import announce, arguments, keep, place_and_day
from benchmarks.timing import geometric_mean, interleave

SHAPES = [(25600, 50), (1024, 1024), (512, 32000), (64, 128256)]
SCALES = [0.1, 1.0, 3.0]
ALPHA_NAMES = {1.25: "α = 1.25", 1.3: "α = 1.3", 1.5: "α = 1.5", 2.0: "α = 2", "row": "one α a row"}
ALPHAS = list(ALPHA_NAMES)


def make_alpha(alpha: float | str, rows: int) -> float | Tensor:
    if alpha != "row":
        return alpha
    generator = torch.Generator().manual_seed(1)
    return 1.05 + 0.95 * torch.rand(rows, 1, generator=generator)


def gate(x: Tensor, alpha: float | Tensor) -> float:
    """Largest error on some rows against the float64 reference; raises if it is not small."""
    rows = slice(0, 64)
    part = alpha[rows].double() if isinstance(alpha, Tensor) else alpha
    with fy.use_backend("reference"):
        truth = fy.entmax(x[rows].double(), part)
    error = (fy.entmax(x, alpha)[rows].double() - truth).abs().max().item()
    if not error <= 1e-6:
        raise SystemExit(f"correctness gate is red: error {error:.1e} at {tuple(x.shape)}, {alpha}")
    return error


def forward(function: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], object]:
    def run() -> object:
        with torch.no_grad():
            return function(x)

    return run


def training(function: Callable[[Tensor], Tensor], x: Tensor, grad: Tensor) -> Callable[[], object]:
    leaf = x.clone().requires_grad_()

    def run() -> object:
        leaf.grad = None
        function(leaf).backward(grad)
        return leaf.grad

    return run


def peers(alpha: float | str, value: float | Tensor) -> dict[str, Callable[[Tensor], Tensor]]:
    """The ``entmax`` package's ways to the same answer: as it comes, and at its fastest."""
    import entmax

    exact = {1.5: entmax.entmax15, 2.0: entmax.sparsemax}.get(alpha)
    if exact is None:
        return {"entmax": lambda x: entmax.entmax_bisect(x, value, dim=-1, n_iter=24)}
    return {
        "entmax": lambda x: exact(x, dim=-1),
        "entmax_k100": lambda x: exact(x, dim=-1, k=min(100, x.shape[-1])),
    }


def measure(shape: tuple[int, int], scale: float, alpha: float | str, options) -> list[dict]:
    generator = torch.Generator().manual_seed(0)
    x = scale * torch.randn(shape, generator=generator)
    grad = torch.randn(shape, generator=generator)
    value = make_alpha(alpha, shape[0])
    error = gate(x, value)

    def ours(scores: Tensor) -> Tensor:
        return fy.entmax(scores, value)

    def dense(scores: Tensor) -> Tensor:
        return torch.softmax(scores, -1)

    seconds = 0.3 if options.quick else 1.5
    results = []
    for mode in ("forward", "training"):
        wrap = forward if mode == "forward" else (lambda f, t: training(f, t, grad))
        work = {"softmax": wrap(dense, x), "fenchel": wrap(ours, x)}
        times = interleave(work, seconds)
        row = {
            "shape": shape,
            "scale": scale,
            "alpha": alpha,
            "mode": mode,
            "softmax_ms": 1e3 * times["softmax"],
            "fenchel_ms": 1e3 * times["fenchel"],
            "ratio": times["fenchel"] / times["softmax"],
            "error": error,
        }
        if options.peers and scale == 1.0:
            package = {name: wrap(f, x) for name, f in peers(alpha, value).items()}
            slow = interleave({"fenchel": work["fenchel"], **package}, 0, 3)
            for name in package:
                row[f"{name}_ms"] = 1e3 * slow[name]
                row[f"times_faster_than_{name}"] = slow[name] / slow["fenchel"]
        results.append(row)
    return results


def call_overhead() -> dict[str, float]:
    """Microseconds for one call on a 64 x 32 input."""
    x = torch.randn(64, 32)
    work = {
        "torch.softmax": forward(lambda t: torch.softmax(t, -1), x),
        "fy.softmax": forward(fy.softmax, x),
        "fy.sparsemax": forward(fy.sparsemax, x),
        "fy.entmax(1.5)": forward(lambda t: fy.entmax(t, 1.5), x),
        "fy.entmax(1.25)": forward(lambda t: fy.entmax(t, 1.25), x),
        "fy.entmax(1.5) training": training(lambda t: fy.entmax(t, 1.5), x, torch.randn(64, 32)),
        "torch.softmax training": training(lambda t: torch.softmax(t, -1), x, torch.randn(64, 32)),
    }
    return {name: 1e6 * value for name, value in interleave(work, 1.0).items()}


def markdown(rows: list[dict], overhead: dict[str, float]) -> str:
    """The table of the docs and the README: training time relative to torch.softmax."""
    lines = [
        "Forward + backward, float32, relative to `torch.softmax` (below 1 is faster), at scores "
        "of scale 0.1 / 1 / 3. In brackets, at scale 1: how many times faster than the `entmax` "
        "package "
        f"as it comes, and with its partial sort (k = 100). {place_and_day()}",
        "",
        "| shape | " + " | ".join(ALPHA_NAMES.values()) + " |",
        "|---|" + "---|" * len(ALPHAS),
    ]
    training = [row for row in rows if row["mode"] == "training"]
    for shape in SHAPES:
        cells = []
        for alpha in ALPHAS:
            here = [r for r in training if r["shape"] == shape and r["alpha"] == alpha]
            cell = " / ".join(f"{row['ratio']:.2f}" for row in here)
            faster = [
                f"{row[f'times_faster_than_{name}']:.0f}×"
                for row in here
                for name in ("entmax", "entmax_k100")
                if f"times_faster_than_{name}" in row
            ]
            cells.append(cell + (f" ({', '.join(faster)})" if faster else ""))
        lines.append(f"| {shape[0]}×{shape[1]} | " + " | ".join(cells) + " |")
    means = {
        mode: geometric_mean([row["ratio"] for row in rows if row["mode"] == mode])
        for mode in ("forward", "training")
    }
    lines += [
        "",
        f"Geometric mean: {means['training']:.2f} forward + backward, {means['forward']:.2f} "
        "forward alone. A call without gradient on a 64×32 input takes "
        f"{overhead['fy.entmax(1.5)']:.0f} µs (`torch.softmax` "
        f"{overhead['torch.softmax']:.0f} µs).",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--shapes", type=int, nargs="*", help="indices into the list of shapes")
    options = parser.parse_args()
    announce()
    chosen = SHAPES if options.shapes is None else [SHAPES[i] for i in options.shapes]
    print(
        f"{'shape':>13} {'scale':>5} {'alpha':>5} {'mode':>9} {'softmax':>9} {'fenchel':>9} ratio"
    )
    rows = []
    for shape in chosen:
        for scale in SCALES:
            for alpha in ALPHAS:
                for row in measure(shape, scale, alpha, options):
                    rows.append(row)
                    name = "x".join(map(str, shape))
                    times = row.get("times_faster_than_entmax")
                    extra = f"  {times:6.1f}x entmax" if times else ""
                    print(
                        f"{name:>13} {scale:5} {alpha:>5} {row['mode']:>9} "
                        f"{row['softmax_ms']:7.2f}ms {row['fenchel_ms']:7.2f}ms "
                        f"{row['ratio']:5.2f}{extra}",
                        flush=True,
                    )
    for mode in ("forward", "training"):
        ratios = [row["ratio"] for row in rows if row["mode"] == mode]
        print(f"{mode}: geometric mean {geometric_mean(ratios):.2f}, worst {max(ratios):.2f}")
    overhead = call_overhead()
    for name, micro in overhead.items():
        print(f"{name:>26}: {micro:6.1f} us on 64x32")
    keep(options, markdown(rows, overhead), [*rows, {"overhead_us": overhead}])


if __name__ == "__main__":
    sys.exit(main())
