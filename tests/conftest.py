"""What every test runs under: poisoned memory, seeded randomness, both backends."""

from __future__ import annotations

import os
import signal
import warnings

import hypothesis
import pytest
import torch

import fenchel as fy

with warnings.catch_warnings():
    # torch's own forward mode scripts functions on its first use, and deprecates that itself.
    warnings.simplefilter("ignore", DeprecationWarning)
    import torch._decomp.decompositions_for_jvp

with warnings.catch_warnings():
    # Without a core, which is no failure, the first call says so; tests/kernels/test_backends.py
    # looks at what it says.
    warnings.simplefilter("ignore", UserWarning)
    fy.sparsemax(torch.zeros(2))

hypothesis.settings.register_profile("dev", deadline=None, print_blob=True)
# In CI a failure must be the change's fault, not the draw's.
hypothesis.settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")

# Small tensors, and as many pytest workers as cores: threads that spin for each other cost minutes.
# A test about threads asks for the `threads` fixture.
torch.set_num_threads(1)

# A shell starts what runs in its background deaf to Ctrl-C, and processes inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

BACKENDS = ("native", "reference")


@pytest.fixture(autouse=True)
def poisoned_memory():
    """Fill what torch allocates with NaN: an element that a kernel forgets cannot pass by luck."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(deterministic)
    torch.utils.deterministic.fill_uninitialized_memory = filled


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(20240217)


@pytest.fixture(params=BACKENDS)
def backend(request):
    """Run the test once under each backend, asked for by name so that it cannot fall back."""
    if request.param == "native" and fy.backends().active != "native":
        pytest.skip(f"no native core here: {fy.backends()}")
    with fy.use_backend(request.param):
        yield request.param


@pytest.fixture
def threads():
    """A setter for torch's thread count that is undone after the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
