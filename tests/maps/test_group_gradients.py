"""fusedmax and oscarmax: derivatives, in every mode that torch has."""

from __future__ import annotations

import pytest
import torch

from tests.maps.cases import GROUP_MAPS as MAPS
from tests.maps.cases import randn

pytestmark = pytest.mark.usefixtures("backend")

every_map = pytest.mark.parametrize("name", MAPS)


@every_map
def test_gradcheck(name, rng):
    x = randn(4, 7, rng=rng).requires_grad_()
    lam = torch.tensor([0.05, 0.13, 0.3, 0.02]).double()[:, None].requires_grad_()
    gamma = torch.tensor(0.8).double().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x, lam, gamma: MAPS[name](x, lam, gamma=gamma),
        (x, lam, gamma),
        check_forward_ad=True,
    )
    assert torch.autograd.gradgradcheck(lambda s: MAPS[name](s, 0.1), x)  # piecewise linear


@every_map
def test_jacobian_is_a_projection_by_groups(name, rng):
    x = randn(12, rng=rng)
    jacobian = torch.autograd.functional.jacobian(lambda s: MAPS[name](s, 0.15), x)
    torch.testing.assert_close(jacobian, jacobian.T, atol=1e-14, rtol=0)
    torch.testing.assert_close(jacobian @ jacobian, jacobian, atol=1e-14, rtol=0)
    assert jacobian.sum(0).abs().max() < 1e-14


@every_map
def test_native_backward_is_the_formula(name, rng):
    x = randn(10, 30, rng=rng, dtype=torch.float32).requires_grad_()
    p = MAPS[name](x, 0.1)
    weights = randn(10, 30, rng=rng, dtype=torch.float32)
    (fast,) = torch.autograd.grad(p, x, weights, retain_graph=True)
    (formula,) = torch.autograd.grad(p, x, weights, create_graph=True)
    torch.testing.assert_close(fast, formula.detach(), atol=1e-6, rtol=0)


@every_map
@pytest.mark.parametrize("lam", [0.15, torch.tensor(0.15).double()], ids=["number", "tensor"])
def test_transforms(name, lam, rng):
    x, v = randn(5, 8, rng=rng), randn(5, 8, rng=rng)

    def f(s):
        return MAPS[name](s, lam)

    def energy(s):
        return f(s).square().sum()

    jacobians = torch.stack([torch.autograd.functional.jacobian(f, row) for row in x])
    for mode in (torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(torch.func.vmap(mode(f))(x), jacobians, atol=1e-14, rtol=0)
    p, tangent = torch.func.jvp(f, (x,), (v,))
    torch.testing.assert_close(p, f(x))
    torch.testing.assert_close(tangent, (jacobians @ v[..., None])[..., 0])
    gradients = 2 * (jacobians @ f(x)[..., None])[..., 0]
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(energy))(x), gradients)
    # The map is linear around x, so the Hessian is that of a square.
    hessian = torch.func.hessian(energy)(x[0])
    torch.testing.assert_close(hessian, 2 * jacobians[0].T @ jacobians[0])
    for mode in (torch.func.jacfwd, torch.func.jacrev):
        torch.testing.assert_close(torch.func.jacfwd(mode(energy))(x[0]), hessian)
    hidden = x[0] / 4
    hidden[3] = -torch.inf
    tangent = torch.func.jvp(f, (hidden,), (v[0],))[1]
    wanted = torch.autograd.functional.jacobian(f, hidden) @ v[0]
    torch.testing.assert_close(tangent, wanted)
    assert tangent[3] == 0 and tangent.abs().max() > 0


@every_map
def test_transforms_in_lam(name, rng):
    x, several = randn(3, 8, rng=rng), torch.tensor([0.05, 0.1, 0.2]).double()
    wanted = torch.autograd.functional.jacobian(lambda lam: MAPS[name](x[0], lam), several[0])
    assert wanted.abs().max() > 0.1
    for mode in (torch.func.jacrev, torch.func.jacfwd):
        got = torch.func.vmap(mode(MAPS[name], argnums=1))(x, several)
        torch.testing.assert_close(got[0], wanted, atol=1e-13, rtol=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@every_map
def test_compile_and_vmap(name, rng):
    torch._dynamo.reset()
    x = randn(3, 4, 6, rng=rng).requires_grad_()
    lam = torch.tensor(0.2).double().requires_grad_()

    def f(s, penalty):
        return MAPS[name](s, penalty, gamma=0.7)

    wanted = f(x, lam)
    got = torch.compile(f, fullgraph=True)(x, lam)
    torch.testing.assert_close(got, wanted, atol=1e-14, rtol=0)
    for a, b in zip(
        torch.autograd.grad(got.square().sum(), (x, lam)),
        torch.autograd.grad(wanted.square().sum(), (x, lam)),
        strict=True,
    ):
        torch.testing.assert_close(a, b, atol=1e-13, rtol=0)
    torch.testing.assert_close(torch.func.vmap(f, (0, None))(x, lam), wanted)

    def tangent(s):
        return torch.func.jvp(f, (s, lam.detach()), (s.sin(), lam.detach()))[1]

    row = x[0, 0].detach() / 4
    torch.testing.assert_close(torch.compile(tangent, fullgraph=True)(row), tangent(row))
    assert tangent(row).abs().max() > 0
    several = torch.tensor([0.1, 0.2, 0.5]).double()
    got = torch.func.vmap(f)(x, several)
    torch.testing.assert_close(got, torch.stack([f(a, b) for a, b in zip(x, several, strict=True)]))
