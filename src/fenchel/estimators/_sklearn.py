"""What is used of NumPy, SciPy and scikit-learn, or the sentence that says how to get them."""

from __future__ import annotations

from fenchel._compat import require

for _module, _package in (("numpy", "numpy"), ("scipy", "scipy"), ("sklearn", "scikit-learn")):
    require(_module, extra="sklearn", purpose="fenchel.estimators", package=_package)

import numpy as np
import scipy.sparse as sparse
from scipy.optimize import minimize
from scipy.special import wrightomega
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import (
    _check_sample_weight as check_sample_weight,
)
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "ConvergenceWarning",
    "check_classification_targets",
    "check_is_fitted",
    "check_random_state",
    "check_sample_weight",
    "column_or_1d",
    "compute_class_weight",
    "minimize",
    "np",
    "sparse",
    "type_of_target",
    "validate_data",
    "wrightomega",
]
