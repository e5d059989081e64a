"""The C++ core by ctypes (CPU, float32 and float64). Each file registers the ops it has."""

from fenchel.kernels._table import load_backend

load_backend(__name__, __path__)
