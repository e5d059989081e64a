"""Structures: finite sets of 0/1 vectors, each with an oracle for the best of them."""

from fenchel.structures._dependency_tree import DependencyTree
from fenchel.structures._one_of import KSubsets, OneOf
from fenchel.structures._structure import Structure

__all__ = ["DependencyTree", "KSubsets", "OneOf", "Structure"]
