"""Output layer + loss against linear + cross-entropy, forward + backward, and the bare product.

    python -m benchmarks.output_layer [--out FILE.jsonl] [--markdown FILE.md] [--quick] [--peers]

Hidden states and weights are random; the scale of the weights sets how many classes are supported.
A ratio below 1 means that ``fy.linear_entmax_loss`` is faster than ``F.linear`` and
``F.cross_entropy``. Each row is checked against the composition of two functions first.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

import fenchel as fy
from benchmarks.reporting import announce, arguments, keep, place_and_day
from benchmarks.timing import Work, interleave, peak_memory

CASES = [(1024, 512, 32000), (1024, 768, 50000), (1024, 512, 128000), (2048, 512, 32000)]
SCALES = (4.0, 1.0, 0.2, 0.02)  # supports of about 5, 30, 500, and 12,000 or more


def make(rows: int, d: int, classes: int, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, d, generator=generator)
    weight = scale / math.sqrt(d) * torch.randn(classes, d, generator=generator)
    return hidden, weight, torch.randint(0, classes, (rows,), generator=generator)


def training(loss: Callable[[Tensor, Tensor], Tensor], *leaves: Tensor) -> Callable[[], object]:
    inputs = [x.clone().requires_grad_() for x in leaves]

    def clear() -> None:
        for x in inputs:
            x.grad = None

    def run() -> object:
        clear()
        return loss(*inputs).backward()

    return Work(run, clear)


def gate(hidden: Tensor, weight: Tensor, target: Tensor) -> None:
    part = slice(0, 64)
    inputs = [hidden[part].clone().requires_grad_(), weight.clone().requires_grad_()]
    ours = torch.autograd.grad(fy.linear_entmax_loss(*inputs, target[part]), inputs)
    plain = fy.entmax_loss(F.linear(*inputs), target[part])
    for got, wanted in zip(ours, torch.autograd.grad(plain, inputs), strict=True):
        error = (got - wanted).abs().max().item()
        if not error <= 1e-6:
            raise SystemExit(f"correctness gate is red: {error:.1e} at {tuple(weight.shape)}")


def measure(case: tuple[int, int, int], scale: float, options) -> dict:
    hidden, weight, target = make(*case, scale)
    gate(hidden, weight, target)
    support = fy.linear_sparse_entmax(hidden, weight).sizes.double().mean().item()
    out = torch.empty(case[0], case[2])
    work = {
        "cross_entropy": training(
            lambda h, w: F.cross_entropy(F.linear(h, w), target), hidden, weight
        ),
        "fenchel": training(lambda h, w: fy.linear_entmax_loss(h, w, target), hidden, weight),
        "matmul": lambda: torch.mm(hidden, weight.t(), out=out),
    }
    if options.peers:
        import entmax

        work["entmax"] = training(
            lambda h, w: entmax.entmax15_loss(F.linear(h, w), target, k=100).mean(), hidden, weight
        )
    times = interleave(work, 2.0 if options.quick else 10.0, 3 if options.quick else 5)
    row = {
        "rows": case[0],
        "d": case[1],
        "classes": case[2],
        "scale": scale,
        "support": support,
        **{f"{name}_ms": 1e3 * value for name, value in times.items()},
        "ratio": times["fenchel"] / times["cross_entropy"],
        "of_matmul": times["fenchel"] / times["matmul"],
    }
    work.pop("matmul")
    row["memory_ratio"] = peak_memory(work["fenchel"]) / peak_memory(work["cross_entropy"])
    return row


def markdown(rows: list[dict]) -> str:
    lines = [
        "Output layer and loss, forward + backward, float32, α = 1.5, against `F.linear` and "
        "`F.cross_entropy`: ratio of times (below 1 is faster), time relative to the bare product "
        f"of hidden states and weights, ratio of peak memory. {place_and_day()}",
        "",
        "| rows, d, V | mean support | time | of the product | memory |",
        "|---|---|---|---|---|",
    ]
    for r in rows:
        lines.append(
            f"| {r['rows']}, {r['d']}, {r['classes']} | {r['support']:.0f} | {r['ratio']:.2f} | "
            f"{r['of_matmul']:.2f} | {r['memory_ratio']:.2f} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--cases", type=int, nargs="*", help="indices into the list of cases")
    options = parser.parse_args()
    announce()
    chosen = CASES if options.cases is None else [CASES[i] for i in options.cases]
    rows = []
    for case in chosen:
        for scale in SCALES:
            row = measure(case, scale, options)
            rows.append(row)
            print(
                f"{case!s:>20} support {row['support']:8.1f}  linear + cross-entropy "
                f"{row['cross_entropy_ms']:6.0f} ms, fenchel {row['fenchel_ms']:6.0f} ms: "
                f"{row['ratio']:.2f}, {row['of_matmul']:.2f} of the product, memory "
                f"{row['memory_ratio']:.2f}"
                + (f", entmax {row['entmax_ms']:.0f} ms" if "entmax_ms" in row else ""),
                flush=True,
            )
    keep(options, markdown(rows), rows)


if __name__ == "__main__":
    sys.exit(main())
