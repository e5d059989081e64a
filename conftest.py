"""Names that the examples in docstrings may use without importing them."""

import pytest
import torch

import fenchel


@pytest.fixture(autouse=True)
def names_in_examples(doctest_namespace):
    doctest_namespace["torch"] = torch
    doctest_namespace["fy"] = fenchel
