"""What is used of NumPy, SciPy and scikit-learn, or the sentence that says how to get them."""

from __future__ import annotations

from typing import Any

from fenchel._compat import require


def _load(module: str, package: str) -> Any:
    return require(module, extra="sklearn", purpose="fenchel.estimators", package=package)


np: Any = _load("numpy", "numpy")
sparse: Any = _load("scipy.sparse", "scipy")
rel_entr: Any = _load("scipy.special", "scipy").rel_entr

BaseEstimator: Any = _load("sklearn.base", "scikit-learn").BaseEstimator
ClassifierMixin: Any = _load("sklearn.base", "scikit-learn").ClassifierMixin
ClassifierTags: Any = _load("sklearn.utils", "scikit-learn").ClassifierTags
ConvergenceWarning: Any = _load("sklearn.exceptions", "scikit-learn").ConvergenceWarning
check_random_state: Any = _load("sklearn.utils", "scikit-learn").check_random_state

_multiclass = _load("sklearn.utils.multiclass", "scikit-learn")
check_classification_targets: Any = _multiclass.check_classification_targets
type_of_target: Any = _multiclass.type_of_target

_validation = _load("sklearn.utils.validation", "scikit-learn")
check_is_fitted: Any = _validation.check_is_fitted
check_sample_weight: Any = _validation._check_sample_weight
column_or_1d: Any = _validation.column_or_1d
validate_data: Any = _validation.validate_data

_class_weight = _load("sklearn.utils.class_weight", "scikit-learn")
compute_class_weight: Any = _class_weight.compute_class_weight
