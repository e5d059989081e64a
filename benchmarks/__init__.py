"""Benchmarks: ratios measured side by side, gated on correctness. ``make bench`` runs them."""
