"""What is used of NumPy and SciPy, or the sentence that says how to get them."""

from __future__ import annotations

from typing import Any

from fenchel._compat import require


def _load(module: str, package: str) -> Any:
    return require(module, extra="sklearn", purpose="fenchel.estimators", package=package)


np: Any = _load("numpy", "numpy")
LinAlgError: Any = np.linalg.LinAlgError
solve_triangular: Any = _load("scipy.linalg", "scipy").solve_triangular
sparse: Any = _load("scipy.sparse", "scipy")
minimize: Any = _load("scipy.optimize", "scipy").minimize
wrightomega: Any = _load("scipy.special", "scipy").wrightomega
