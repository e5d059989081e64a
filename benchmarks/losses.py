"""Losses against F.cross_entropy and the ``entmax`` package, forward + backward.

    python -m benchmarks.losses [--out FILE.jsonl] [--markdown FILE.md] [--quick] [--peers]

Every row is checked against the float64 reference before it is timed. A ratio below 1 means that
fenchel is faster than ``F.cross_entropy`` on the same scores.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

import fenchel as fy
from benchmarks.reporting import announce, arguments, keep, place_and_day
from benchmarks.timing import geometric_mean, interleave

SHAPES = [(4096, 1000), (512, 32000), (256, 50257), (64, 128256)]
SCALES = [0.1, 1.0, 3.0]
ALPHAS = {1.3: "α = 1.3", 1.5: "α = 1.5", 2.0: "α = 2"}


def gate(scores: Tensor, target: Tensor, alpha: float) -> float:
    """Largest error of loss and gradient on some rows against the float64 reference."""
    part = slice(0, 16)
    leaf, wide = scores[part].clone(), scores[part].double()
    leaf.requires_grad_()
    wide.requires_grad_()
    loss = fy.entmax_loss(leaf, target[part], alpha)
    with fy.use_backend("reference"):
        truth = fy.entmax_loss(wide, target[part], alpha)
    (got,) = torch.autograd.grad(loss, leaf)
    (wanted,) = torch.autograd.grad(truth, wide)
    off = ((loss - truth) / (1 + truth)).abs().item()
    error = max(off, (got.double() - wanted).abs().max().item())
    if not error <= 2e-6:
        raise SystemExit(f"correctness gate is red: {error:.1e} at {tuple(scores.shape)}, {alpha}")
    return error


def training(function: Callable[[Tensor], Tensor], scores: Tensor) -> Callable[[], object]:
    leaf = scores.clone().requires_grad_()

    def run() -> object:
        leaf.grad = None
        function(leaf).backward()
        return leaf.grad

    return run


def forward(function: Callable[[Tensor], Tensor], scores: Tensor) -> Callable[[], object]:
    def run() -> object:
        with torch.no_grad():
            return function(scores)

    return run


def peer(alpha: float, target: Tensor) -> Callable[[Tensor], Tensor]:
    """The ``entmax`` package's fastest way to the same loss."""
    import entmax

    if alpha == 1.5:
        return lambda x: entmax.entmax15_loss(x, target, k=100).mean()
    if alpha == 2:
        return lambda x: entmax.sparsemax_loss(x, target, k=100).mean()
    return lambda x: entmax.entmax_bisect_loss(x, target, alpha, n_iter=24).mean()


def measure(shape: tuple[int, int], scale: float, alpha: float, options) -> list[dict]:
    generator = torch.Generator().manual_seed(0)
    scores = scale * torch.randn(shape, generator=generator)
    target = torch.randint(0, shape[1], shape[:1], generator=generator)
    error = gate(scores, target, alpha)

    def ours(x: Tensor) -> Tensor:
        return fy.entmax_loss(x, target, alpha)

    def dense(x: Tensor) -> Tensor:
        return F.cross_entropy(x, target)

    rows = []
    for mode, wrap in (("forward", forward), ("training", training)):
        work = {"cross_entropy": wrap(dense, scores), "fenchel": wrap(ours, scores)}
        times = interleave(work, 0.3 if options.quick else 1.5)
        row = {
            "shape": shape,
            "scale": scale,
            "alpha": alpha,
            "mode": mode,
            "cross_entropy_ms": 1e3 * times["cross_entropy"],
            "fenchel_ms": 1e3 * times["fenchel"],
            "ratio": times["fenchel"] / times["cross_entropy"],
            "error": error,
        }
        if options.peers and scale == 1.0 and mode == "training":
            package = wrap(peer(alpha, target), scores)
            slow = interleave({"fenchel": work["fenchel"], "entmax": package}, 0, 3)
            row["times_faster_than_entmax"] = slow["entmax"] / slow["fenchel"]
        rows.append(row)
    return rows


def markdown(rows: list[dict]) -> str:
    """The table of the docs: training time relative to F.cross_entropy."""
    lines = [
        "Loss, forward + backward, float32, relative to `F.cross_entropy` on the same scores "
        "(below 1 is faster), at scores of scale 0.1 / 1 / 3. In brackets, at scale 1: how many "
        "times faster than the `entmax` package at its fastest (k = 100, or 24 bisections). "
        f"{place_and_day()}",
        "",
        "| scores | " + " | ".join(ALPHAS.values()) + " |",
        "|---|" + "---|" * len(ALPHAS),
    ]
    training_rows = [row for row in rows if row["mode"] == "training"]
    for shape in SHAPES:
        cells = []
        for alpha in ALPHAS:
            here = [r for r in training_rows if r["shape"] == shape and r["alpha"] == alpha]
            cell = " / ".join(f"{row['ratio']:.2f}" for row in here)
            faster = [
                r["times_faster_than_entmax"] for r in here if "times_faster_than_entmax" in r
            ]
            cells.append(cell + "".join(f" ({value:.0f}×)" for value in faster))
        lines.append(f"| {shape[0]}×{shape[1]} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def main() -> None:
    options = arguments(__doc__).parse_args()
    announce()
    print(f"{'scores':>13} {'scale':>5} {'alpha':>5} {'mode':>9} {'torch':>9} {'fenchel':>9} ratio")
    rows = []
    for shape in SHAPES:
        for scale in SCALES:
            for alpha in ALPHAS:
                for row in measure(shape, scale, alpha, options):
                    rows.append(row)
                    times = row.get("times_faster_than_entmax")
                    print(
                        f"{shape[0]:>6}x{shape[1]:<6} {scale:5} {alpha:5} {row['mode']:>9} "
                        f"{row['cross_entropy_ms']:7.2f}ms {row['fenchel_ms']:7.2f}ms "
                        f"{row['ratio']:5.2f}" + (f"  {times:6.1f}x entmax" if times else ""),
                        flush=True,
                    )
    for mode in ("forward", "training"):
        large = [r["ratio"] for r in rows if r["mode"] == mode and r["shape"][1] >= 32000]
        print(f"{mode}, V >= 32k: mean {geometric_mean(large):.2f}, worst {max(large):.2f}")
    keep(options, markdown(rows), rows)


if __name__ == "__main__":
    sys.exit(main())
