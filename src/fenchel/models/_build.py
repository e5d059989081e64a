from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fenchel._checks import FenchelError
from fenchel.models._config import Config, LSTMConfig, TransformerConfig
from fenchel.models._lstm import LSTMSeq2Seq
from fenchel.models._seq2seq import Seq2Seq
from fenchel.models._transformer import TransformerSeq2Seq

KINDS: dict[str, tuple[Any, Any]] = {
    "lstm": (LSTMConfig, LSTMSeq2Seq),
    "transformer": (TransformerConfig, TransformerSeq2Seq),
}


def build_model(config: Config) -> Seq2Seq:
    """The model of a config, with fresh parameters.

    Example:
        >>> from fenchel.models import build_model, model_config
        >>> sizes = dict(source_vocabulary=9, target_vocabulary=9)
        >>> type(build_model(model_config("lstm", hidden=8, embedding=8, **sizes))).__name__
        'LSTMSeq2Seq'
    """
    for of_kind, model in KINDS.values():
        if isinstance(config, of_kind):
            return model(config)
    names = " or ".join(of_kind.__name__ for of_kind, _ in KINDS.values())
    raise FenchelError(f"build_model: expected {names}, but got {type(config).__name__}.")


def model_config(kind: str, **values: Any) -> Config:
    """The config of a kind of model, with the given fields in the place of the defaults."""
    return config_from_dict({"kind": kind, **values})


def config_from_dict(values: Mapping[str, Any]) -> Config:
    """A config from its dictionary, as ``dataclasses.asdict`` gives it.

    Args:
        values: the fields, and ``kind``: ``"lstm"`` or ``"transformer"``. Fields that are left out
            have their defaults; a name that is no field is refused.

    Example:
        >>> from fenchel.models import config_from_dict
        >>> config_from_dict({"kind": "lstm", "layers": 1}).layers
        1
    """
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise FenchelError(
            f"config_from_dict: expected `kind` to be one of {', '.join(KINDS)}, but got {kind!r}."
        )
    of_kind = KINDS[kind][0]
    known = [f.name for f in fields(of_kind)]
    unknown = [str(name) for name in values if name not in known]
    if unknown:
        raise FenchelError(
            f"config_from_dict: expected fields of {of_kind.__name__} ({', '.join(known)}), but "
            f"got {', '.join(map(repr, unknown))}."
        )
    return of_kind(**values)
