from __future__ import annotations

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
    """The config of a kind of model.

    Args:
        kind: ``"lstm"`` or ``"transformer"``.
        values: fields of :class:`LSTMConfig` or :class:`TransformerConfig`, as
            ``dataclasses.asdict`` gives them. Those that are left out have their defaults; a name
            that is not a field is refused.

    Example:
        >>> from fenchel.models import model_config
        >>> model_config("lstm", layers=1).layers
        1
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise FenchelError(
            f"model_config: expected `kind` to be one of {', '.join(KINDS)}, but got {kind!r}."
        )
    of_kind = KINDS[kind][0]
    known = [f.name for f in fields(of_kind)]
    unknown = [name for name in values if name not in known]
    if unknown:
        raise FenchelError(
            f"model_config: expected fields of {of_kind.__name__} ({', '.join(known)}), but got "
            f"{', '.join(map(repr, unknown))}."
        )
    return of_kind(kind=kind, **values)
