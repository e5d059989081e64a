"""scikit-learn estimators on Fenchel-Young losses. They need the extra ``sklearn``."""

from fenchel.estimators._classifier import FenchelYoungClassifier
from fenchel.estimators._multilabel import FenchelYoungMultilabelClassifier
from fenchel.estimators._proportions import LabelProportionEstimator

__all__ = [
    "FenchelYoungClassifier",
    "FenchelYoungMultilabelClassifier",
    "LabelProportionEstimator",
]
