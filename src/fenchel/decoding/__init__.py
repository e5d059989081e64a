"""Search whose results carry certificates, over any model with a start and a step."""

from fenchel.decoding._beam import beam_search
from fenchel.decoding._certificate import Certificate
from fenchel.decoding._model import State, Step, StepModel
from fenchel.decoding._result import Hypothesis, SearchResult
from fenchel.decoding._trace import Trace, TraceStep

__all__ = [
    "Certificate",
    "Hypothesis",
    "SearchResult",
    "State",
    "Step",
    "StepModel",
    "Trace",
    "TraceStep",
    "beam_search",
]
