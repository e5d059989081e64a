"""Entmax attention against F.scaled_dot_product_attention: training, forward, decoding.

    python -m benchmarks.attention [--out FILE.jsonl] [--markdown FILE.md] [--quick] [--peers]

The scale of the queries sets how many keys are supported. A ratio below 1 means that
``fy.entmax_attention`` is faster. Each row is checked against dense weights first.
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

# batch, heads, length, width, causal, scale of the queries
CASES = [
    (4, 8, 512, 64, True, 1.0),
    (4, 8, 512, 64, False, 1.0),
    (1, 8, 2048, 64, True, 0.1),
    (1, 8, 2048, 64, True, 1.0),
    (1, 8, 2048, 64, True, 3.0),
    (1, 8, 2048, 64, False, 1.0),
    (2, 12, 2048, 64, True, 1.0),
    (1, 8, 4096, 64, True, 1.0),
    (1, 8, 8192, 64, True, 1.0),
]
CACHES = [(1, 8, 4096, 64), (8, 8, 4096, 64), (1, 32, 32768, 128)]


def make(batch: int, heads: int, length: int, width: int, scale: float) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(batch, heads, length, width, generator=generator) for _ in range(3))
    return [scale * q, k, v]


def gate(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> float:
    """Check output and gradients of one head, up to 1024 positions; return the mean support."""
    inputs = [x[:1, :1, :1024].clone().requires_grad_() for x in (q, k, v)]
    wide = [x.detach().double().requires_grad_() for x in inputs]
    out = fy.entmax_attention(*inputs, is_causal=causal)
    with fy.use_backend("reference"):
        truth = fy.entmax_attention(*wide, is_causal=causal)
    grads = torch.autograd.grad(out.square().sum(), inputs)
    true_grads = torch.autograd.grad(truth.square().sum(), wide)
    pairs = [(out, truth), *zip(grads, true_grads, strict=True)]
    error = max(((a - b).abs().max() / b.abs().max()).item() for a, b in pairs)
    if not error <= 1e-5:
        raise SystemExit(f"correctness gate is red: {error:.1e} at {tuple(q.shape)}")
    with torch.no_grad():
        _, weights = fy.sparse_entmax_attention(q, k, v, is_causal=causal)
    return weights.sizes.double().mean().item()


def training(function: Callable[..., Tensor], tensors: list[Tensor]) -> Callable[[], object]:
    inputs = [x.clone().requires_grad_() for x in tensors]
    grad = torch.ones_like(tensors[2])

    def clear() -> None:
        for x in inputs:
            x.grad = None

    def run() -> object:
        clear()
        return function(*inputs).backward(grad)

    return Work(run, clear)


def forward(function: Callable[..., Tensor], tensors: list[Tensor]) -> Callable[[], object]:
    def run() -> object:
        with torch.no_grad():
            return function(*tensors)

    return run


def package(causal: bool) -> Callable[..., Tensor]:
    """Attention with the dense weights of the ``entmax`` package."""
    import entmax

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if causal:
            seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
            scores = scores.masked_fill(~seen, -1e4)
        return entmax.entmax15(scores, dim=-1) @ v

    return run


def measure(case: tuple, options) -> dict:
    *shape, causal, scale = case
    tensors = make(*shape, scale)
    support = gate(*tensors, causal)

    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return fy.entmax_attention(q, k, v, is_causal=causal)

    def dense(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    seconds = 2.0 if options.quick else 6.0
    row = {"shape": shape, "causal": causal, "scale": scale, "support": support}
    for mode, wrap in (("forward", forward), ("training", training)):
        work = {"sdpa": wrap(dense, tensors), "fenchel": wrap(ours, tensors)}
        if options.peers and mode == "training" and shape[2] <= 2048:
            work["entmax"] = wrap(package(causal), tensors)
        if mode == "training":  # all scores, causal or not: what a dense product costs
            q, k, _ = tensors
            work["matmul"] = lambda q=q, k=k: torch.matmul(q, k.transpose(-1, -2))
        times = interleave(work, seconds, 3)
        row |= {f"{mode}_{name}_ms": 1e3 * value for name, value in times.items()}
        row[f"{mode}_ratio"] = times["fenchel"] / times["sdpa"]
    row["of_matmul"] = row["training_fenchel_ms"] / row["training_matmul_ms"]
    row["memory_mb"] = peak_memory(training(ours, tensors))
    row["sdpa_memory_mb"] = peak_memory(training(dense, tensors))
    return row


def decode(case: tuple[int, int, int, int], options) -> dict:
    batch, heads, length, width = case
    q, k, v = make(batch, heads, length, width, 2.0)
    q = q[:, :, :1].contiguous()
    work = {
        "sdpa": forward(F.scaled_dot_product_attention, [q, k, v]),
        "fenchel": forward(fy.entmax_attention, [q, k, v]),
        "matmul": lambda: torch.matmul(q, k.transpose(-1, -2)),
    }
    if options.peers:
        work["entmax"] = forward(package(False), [q, k, v])
    times = interleave(work, 1.0 if options.quick else 4.0)
    return {
        "decode": case,
        **{f"{name}_ms": 1e3 * value for name, value in times.items()},
        "ratio": times["fenchel"] / times["sdpa"],
    }


def markdown(rows: list[dict], steps: list[dict]) -> str:
    lines = [
        "Attention, float32, α = 1.5, against `F.scaled_dot_product_attention`: ratio of times "
        f"(below 1 is faster) and peak memory. {place_and_day()}",
        "",
        "| batch, heads, length, width | mean support | forward + backward | of the product QKᵀ | "
        "forward | memory, MB (SDPA) |",
        "|---|---|---|---|---|---|",
    ]
    for r in rows:
        shape = ", ".join(map(str, r["shape"])) + (", causal" if r["causal"] else "")
        lines.append(
            f"| {shape} | {r['support']:.0f} | {r['training_ratio']:.2f} | "
            f"{r['of_matmul']:.2f} | {r['forward_ratio']:.2f} | {r['memory_mb']:.0f} "
            f"({r['sdpa_memory_mb']:.0f}) |"
        )
    told = "; ".join(
        f"{r['decode'][0]}×{r['decode'][1]} heads, {r['decode'][2]} keys of width "
        f"{r['decode'][3]}: {r['ratio']:.2f}"
        for r in steps
    )
    return "\n".join([*lines, "", f"One query against a cache of keys (decoding): {told}.", ""])


def main() -> None:
    options = arguments(__doc__).parse_args()
    announce()
    rows, steps = [], []
    for case in CASES:
        row = measure(case, options)
        rows.append(row)
        peer = row.get("training_entmax_ms")
        print(
            f"{case!s:>34} support {row['support']:7.1f}  training "
            f"{row['training_sdpa_ms']:7.1f} -> {row['training_fenchel_ms']:7.1f} ms: "
            f"{row['training_ratio']:.2f} ({row['of_matmul']:.2f} of the product), forward "
            f"{row['forward_ratio']:.2f}, memory {row['memory_mb']:.0f} MB (SDPA "
            f"{row['sdpa_memory_mb']:.0f})" + (f", entmax {peer:.0f} ms" if peer else ""),
            flush=True,
        )
    for cache in CACHES:
        row = decode(cache, options)
        steps.append(row)
        print(
            f"decode {cache!s:>22}: {row['sdpa_ms']:.2f} -> {row['fenchel_ms']:.2f} ms: "
            f"{row['ratio']:.2f}, the product alone {row['matmul_ms']:.2f} ms"
            + (f", entmax {row['entmax_ms']:.2f} ms" if "entmax_ms" in row else "")
        )
    keep(options, markdown(rows, steps), [*rows, *steps])


if __name__ == "__main__":
    sys.exit(main())
