"""Sequence-to-sequence models with sparse attention and sparse outputs."""

from fenchel.models._batch import BOS, EOS, PAD, UNK, Batch
from fenchel.models._build import build_model, model_config
from fenchel.models._config import LSTMConfig, TransformerConfig
from fenchel.models._lstm import LSTMSeq2Seq
from fenchel.models._normalizers import NORMALIZERS, normalizer
from fenchel.models._seq2seq import Seq2Seq
from fenchel.models._transformer import TransformerSeq2Seq

__all__ = [
    "BOS",
    "EOS",
    "NORMALIZERS",
    "PAD",
    "UNK",
    "Batch",
    "LSTMConfig",
    "LSTMSeq2Seq",
    "Seq2Seq",
    "TransformerConfig",
    "TransformerSeq2Seq",
    "build_model",
    "model_config",
    "normalizer",
]
