"""Search whose results carry certificates, over any model with a start and a step."""

from fenchel.decoding._beam import beam_search
from fenchel.decoding._bigram import Bigram
from fenchel.decoding._certificate import Certificate
from fenchel.decoding._ensemble import Ensemble
from fenchel.decoding._exact import exact_search
from fenchel.decoding._forced import Suggestion, forced_decoding, suggest
from fenchel.decoding._greedy import greedy_search
from fenchel.decoding._model import State, Step, StepModel
from fenchel.decoding._result import Hypothesis, SearchResult
from fenchel.decoding._trace import Trace, TraceStep

__all__ = [
    "Bigram",
    "Certificate",
    "Ensemble",
    "Hypothesis",
    "SearchResult",
    "State",
    "Step",
    "StepModel",
    "Suggestion",
    "Trace",
    "TraceStep",
    "beam_search",
    "exact_search",
    "forced_decoding",
    "greedy_search",
    "suggest",
]
