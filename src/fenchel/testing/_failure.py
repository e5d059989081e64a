"""How a check fails: with a sentence that names the property, the instance and both numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from fenchel._short import short


class CheckFailed(AssertionError):
    """A property does not hold. The message says which one, on what, what was expected and came."""


CheckFailed.__module__ = "fenchel.testing"  # as users import it, and tracebacks show it


#: A property is a function whose name says what holds; it raises if it does not.
Check = Callable[..., None]


def sentence_of(check: Check) -> str:
    """The name of a check in words."""
    return check.__name__.strip("_").replace("_", " ")


def run(subject: str, check: Check, *arguments: Any) -> None:
    """Run a check; whatever goes wrong in it becomes one sentence about the subject."""
    __tracebackhide__ = True  # in pytest's report
    try:
        check(*arguments)
    except CheckFailed as failure:
        raise CheckFailed(f"{subject}: {sentence_of(check)}: {failure}") from None
    except Exception as error:
        raise CheckFailed(
            f"{subject}: {sentence_of(check)}: expected an answer, but got "
            f"{type(error).__name__}: {error}"
        ) from error


def run_all(subject: str, checks: Iterable[Check], *arguments: Any) -> list[str]:
    """Run checks in order; their names in words."""
    done = []
    for check in checks:
        run(subject, check, *arguments)
        done.append(sentence_of(check))
    return done


def expect(condition: Any, sentence: str) -> None:
    """Fail with a sentence unless something holds (for a tensor: everywhere)."""
    if isinstance(condition, Tensor):
        condition = bool(condition.all())
    if not condition:
        raise CheckFailed(sentence)


def close(got: Tensor, wanted: Tensor, tolerance: float = 1e-9, what: str = "the value") -> None:
    """Fail unless two tensors agree up to an absolute plus relative tolerance."""
    same_form(got, wanted, what)
    got, wanted = got.detach(), wanted.detach()
    near = (got - wanted).abs() <= tolerance + tolerance * wanted.abs()
    off = ~(near | (got == wanted))  # infinities are equal or they are not; NaN never is
    if bool(off.any()):
        at = tuple(off.nonzero()[0].tolist())
        where = f" at {list(at)}" if at else ""
        raise CheckFailed(
            f"expected {what} {float(wanted[at]):.12g}{where}, but got {float(got[at]):.12g} "
            f"({int(off.sum())} of {off.numel()} are off by more than {tolerance:g})"
        )


def same(got: Tensor, wanted: Tensor, what: str = "the value") -> None:
    """Fail unless two tensors are equal in every entry (NaN counts as equal to NaN)."""
    same_form(got, wanted, what)
    got, wanted = got.detach(), wanted.detach()
    off = ~((got == wanted) | (got.isnan() & wanted.isnan()))
    if bool(off.any()):
        at = tuple(off.nonzero()[0].tolist())
        where = f" at {list(at)}" if at else ""
        raise CheckFailed(
            f"expected {what} {float(wanted[at])!r}{where} to the last bit, but got "
            f"{float(got[at])!r} ({int(off.sum())} of {off.numel()} differ)"
        )


def same_form(got: Any, wanted: Tensor, what: str) -> None:
    if not isinstance(got, Tensor):
        raise CheckFailed(f"expected {what} as a tensor, but got {short(got)}")
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        raise CheckFailed(
            f"expected {what} of shape {tuple(wanted.shape)} and {wanted.dtype}, but got "
            f"{tuple(got.shape)} and {got.dtype}"
        )


def derivatives(
    call: Callable[..., Any], leaves: list[Tensor], orders: int = 2, *, fast: bool = True
) -> None:
    """Fail unless autograd agrees with finite differences, once and for a second derivative."""
    tests: list[tuple[str, Callable[..., bool], float]] = [
        ("first", torch.autograd.gradcheck, 1e-5),
        ("second", torch.autograd.gradgradcheck, 1e-5 if fast else 1e-4),
    ]
    for word, test, atol in tests[:orders]:
        try:
            test(call, leaves, fast_mode=fast, atol=atol)
        except RuntimeError as error:  # which a GradcheckError is
            said = " ".join(str(error).split())[:300]
            raise CheckFailed(
                f"expected the {word} derivative of finite differences, but got another: {said}"
            ) from error
