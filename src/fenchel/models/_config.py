from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from fenchel._checks import FenchelError, check_int, check_number
from fenchel._short import short
from fenchel.models._batch import check_vocabulary
from fenchel.models._normalizers import NORMALIZERS, normalizer
from fenchel.models.output import output_alpha

_NORMALIZER = (
    f"{', '.join(name for name in NORMALIZERS if name != 'structured')}, maybe with a parameter "
    "(entmax:1.3, entmax:learned, fusedmax:0.1) or, for global attention, structured:subsets:3"
)
_OUTPUT = "output probabilities and loss: softmax, sparsemax, entmax (1.5) or entmax:1.3"
_SOURCE_SIZE = "number of source tokens; 0 until the task knows it"
_TARGET_SIZE = "number of target tokens; 0 until the task knows it"
_TIED = "whether the target embedding is also the output layer's weight"
_SHARED = "whether source and target share one embedding (needs a joint vocabulary)"
_SMOOTHING = "how much of each target token is spread over the others"


# Wider or deeper than any model that one machine trains; a slip of the finger, or a stranger's
# config, is refused before it is built.
_MOST = {
    "source_vocabulary": 2**24,
    "target_vocabulary": 2**24,
    "embedding": 2**16,
    "hidden": 2**16,
    "width": 2**16,
    "heads": 2**10,
    "layers": 256,
    "feedforward": 2**18,
    "max_length": 2**20,
}
_LONGEST = 100  # characters of a name of a map


def _field(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class LSTMConfig:
    """An LSTM encoder-decoder with attention. Defaults are those of Peters et al. (2019) §4.1.

    Every field's ``metadata["help"]`` says what it is.

    Example:
        >>> from fenchel.models import LSTMConfig
        >>> LSTMConfig(hidden=7)
        Traceback (most recent call last):
        ...
        fenchel._checks.FenchelError: LSTMConfig: expected an even `hidden` for a bidirectional
        encoder, half for each direction, but got 7.
    """

    kind: str = _field("lstm", "the kind of model: lstm")
    source_vocabulary: int = _field(0, _SOURCE_SIZE)
    target_vocabulary: int = _field(0, _TARGET_SIZE)
    embedding: int = _field(300, "width of the embeddings")
    hidden: int = _field(300, "width of the LSTM states (both directions of the encoder together)")
    layers: int = _field(2, "number of layers of the encoder and of the decoder")
    bidirectional: bool = _field(True, "whether the encoder also reads from right to left")
    attention: str = _field("entmax", "attention weights: " + _NORMALIZER)
    attention_score: str = _field("general", "attention scores: general, dot or mlp")
    output: str = _field("entmax", _OUTPUT)
    input_feeding: bool = _field(True, "whether the decoder reads its last attentional output")
    tied_embeddings: bool = _field(False, _TIED)
    shared_embeddings: bool = _field(False, _SHARED)
    dropout: float = _field(0.3, "dropout of embeddings, between layers and before the output")
    label_smoothing: float = _field(0.0, _SMOOTHING)

    def __post_init__(self) -> None:
        _check_common(self)
        for label in ("embedding", "hidden", "layers"):
            _check_count(self, label)
        _check_choice(self, "attention_score", ("general", "dot", "mlp"))
        _check_bools(self, "bidirectional", "input_feeding")
        _check_map(self, "attention")
        if self.bidirectional and self.hidden % 2:
            raise FenchelError(
                "LSTMConfig: expected an even `hidden` for a bidirectional encoder, half for each "
                f"direction, but got {self.hidden}."
            )
        if self.tied_embeddings and self.embedding != self.hidden:
            raise FenchelError(
                "LSTMConfig: expected `embedding` equal to `hidden` with `tied_embeddings`, but "
                f"got {self.embedding} and {self.hidden}."
            )


@dataclass(frozen=True)
class TransformerConfig:
    """A Transformer encoder-decoder whose three kinds of attention each have their normalizer.

    Every field's ``metadata["help"]`` says what it is.

    Example:
        >>> from fenchel.models import TransformerConfig
        >>> TransformerConfig(width=6, heads=4)
        Traceback (most recent call last):
        ...
        fenchel._checks.FenchelError: TransformerConfig: expected `heads` that divides `width`, but
        got 4 and 6.
    """

    kind: str = _field("transformer", "the kind of model: transformer")
    source_vocabulary: int = _field(0, _SOURCE_SIZE)
    target_vocabulary: int = _field(0, _TARGET_SIZE)
    width: int = _field(256, "width of the model and its embeddings")
    heads: int = _field(4, "number of attention heads; divides the width")
    layers: int = _field(4, "number of layers of the encoder and of the decoder")
    feedforward: int = _field(1024, "width of the feed-forward layers")
    norm: str = _field("pre", "layer normalisation before (pre) or after (post) each sublayer")
    positions: str = _field("sinusoidal", "position embeddings: sinusoidal or learned")
    max_length: int = _field(1024, "longest sequence that learned positions know")
    encoder_attention: str = _field("entmax", "weights of the encoder: " + _NORMALIZER)
    decoder_attention: str = _field("entmax", "weights of the decoder to itself: " + _NORMALIZER)
    cross_attention: str = _field("entmax", "weights of the decoder to the source: " + _NORMALIZER)
    output: str = _field("entmax", _OUTPUT)
    tied_embeddings: bool = _field(False, _TIED)
    shared_embeddings: bool = _field(False, _SHARED)
    dropout: float = _field(0.1, "dropout of embeddings and of each sublayer's output")
    attention_dropout: float = _field(0.0, "dropout of attention weights")
    label_smoothing: float = _field(0.0, _SMOOTHING)

    def __post_init__(self) -> None:
        _check_common(self)
        for label in ("width", "heads", "layers", "feedforward", "max_length"):
            _check_count(self, label)
        _check_choice(self, "norm", ("pre", "post"))
        _check_choice(self, "positions", ("sinusoidal", "learned"))
        _check_share(self, "attention_dropout")
        for label in ("encoder_attention", "decoder_attention", "cross_attention"):
            spec = _check_map(self, label)
            if spec.startswith("structured"):
                raise FenchelError(
                    f"TransformerConfig: {spec!r} is for the global attention of the LSTM; heads "
                    "need a map of single positions, such as 'entmax'."
                )
        if self.width % self.heads:
            raise FenchelError(
                "TransformerConfig: expected `heads` that divides `width`, but got "
                f"{self.heads} and {self.width}."
            )
        if self.positions == "sinusoidal" and self.width % 2:
            raise FenchelError(
                "TransformerConfig: expected an even `width` for sinusoidal positions, but got "
                f"{self.width}."
            )


Config = LSTMConfig | TransformerConfig


def check_buildable(config: Config) -> None:
    """Check that the vocabularies are known."""
    name = type(config).__name__
    check_vocabulary(name, "source_vocabulary", config.source_vocabulary)
    check_vocabulary(name, "target_vocabulary", config.target_vocabulary)


def _check_common(config: Config) -> None:
    name = type(config).__name__
    kind = next(f.default for f in fields(config) if f.name == "kind")
    if config.kind != kind:
        raise FenchelError(f"{name}: expected `kind` to be {kind!r}, but got {short(config.kind)}.")
    for label in ("source_vocabulary", "target_vocabulary"):
        size = getattr(config, label)
        if check_int(name, label, size) != 0:  # 0: not known yet
            check_vocabulary(name, label, size)
            _check_most(config, label)
    _check_bools(config, "tied_embeddings", "shared_embeddings")
    _check_share(config, "dropout")
    _check_share(config, "label_smoothing")
    _check_short(config, "output")
    output_alpha(config.output)
    if config.shared_embeddings and config.source_vocabulary != config.target_vocabulary:
        raise FenchelError(
            f"{name}: expected vocabularies of one size with `shared_embeddings`, but got "
            f"{config.source_vocabulary} and {config.target_vocabulary}."
        )


def _check_count(config: Config, label: str) -> None:
    name, value = type(config).__name__, getattr(config, label)
    if check_int(name, label, value) < 1:
        raise FenchelError(f"{name}: expected `{label}` of at least 1, but got {short(value)}.")
    _check_most(config, label)


def _check_most(config: Config, label: str) -> None:
    name, value = type(config).__name__, getattr(config, label)
    if value > _MOST[label]:
        raise FenchelError(
            f"{name}: expected `{label}` of at most {_MOST[label]}, but got {short(value)}."
        )


def _check_short(config: Config, label: str) -> None:
    value = getattr(config, label)
    if isinstance(value, str) and len(value) > _LONGEST:
        raise FenchelError(
            f"{type(config).__name__}: expected `{label}` to name a map in at most {_LONGEST} "
            f"characters, but got {short(value)}."
        )


def _check_map(config: Config, label: str) -> str:
    _check_short(config, label)
    spec: str = getattr(config, label)
    normalizer(spec)
    return spec


def _check_share(config: Config, label: str) -> None:
    name, value = type(config).__name__, getattr(config, label)
    if not check_number(name, label, value, 0.0, "(0 is none)") < 1:
        raise FenchelError(f"{name}: expected `{label}` below 1, but got {short(value)}.")


def _check_bools(config: Config, *labels: str) -> None:
    for label in labels:
        value = getattr(config, label)
        if not isinstance(value, bool):
            raise FenchelError(
                f"{type(config).__name__}: expected `{label}` to be a bool, but got {short(value)}."
            )


def _check_choice(config: Config, label: str, choices: tuple[str, ...]) -> None:
    value = getattr(config, label)
    if value not in choices:
        raise FenchelError(
            f"{type(config).__name__}: expected `{label}` to be one of {', '.join(choices)}, but "
            f"got {short(value)}."
        )
