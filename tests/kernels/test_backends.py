"""Which backend runs, what is said when one cannot, and life in other processes."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys

import pytest
import torch

import fenchel as fy
from fenchel import kernels
from fenchel.kernels import _table, kernel_for
from fenchel.kernels.native import _backend, _library

needs_native = pytest.mark.skipif(_library.LIBRARY is None, reason=_library.REASON)


SLOWER = "The reference kernels run instead: same results, 10 to 100 times slower on the CPU."


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout.strip()


def test_use_backend_is_undone_after_the_block():
    before = fy.backends()
    with fy.use_backend("reference") as chosen:
        assert repr(chosen) == "use_backend('reference')"
        assert fy.backends().active == "reference"
        assert fy.backends().reason == "asked for with use_backend('reference')."
    assert fy.backends() == before


def test_use_backend_refuses_other_names():
    with pytest.raises(fy.FenchelError) as error:
        fy.use_backend("cuda")
    assert str(error.value) == "use_backend: expected 'native' or 'reference', but got 'cuda'."


@needs_native
def test_native_by_name_never_falls_back():
    with (
        fy.use_backend("native"),
        pytest.raises(fy.FenchelError, match=r"expected a CPU tensor .* on meta"),
    ):
        fy.sparsemax(torch.zeros(2, 3, device="meta"))


@needs_native
def test_every_op_says_who_serves_it():
    report = fy.backends()
    assert {cpu for cpu, _ in report.ops.values()} == {"native", "reference"}
    torch_alone = {op for op, (cpu, _) in report.ops.items() if cpu == "reference"}
    assert torch_alone == _table._torch_alone  # each said so: no kernel was forgotten
    assert {"sample.tree", "k_best.alignment", "smoothed.k_subsets"} <= torch_alone
    with fy.use_backend("native"):  # no kernel is wanted for them, so nothing falls back
        assert all(kernel_for(op, torch.zeros(2)) is None for op in torch_alone)
    assert report.ops["entmax"] == ("native", "reference")
    assert report.ops["entmax.backward"] == ("native", None)  # the map's own formulas
    assert report.ops["oracle.tree"] == ("native", "native (CPU)")
    assert report.reasons == {"native": report.reason, "reference": "it is plain torch."}
    lines = str(report).splitlines()
    assert lines[0] == f"native: {report.reason}"
    assert "entmax.backward             native     torch" in lines
    with fy.use_backend("reference"):
        asked = fy.backends().ops
    assert asked["entmax"] == ("reference", "reference")
    assert asked["entmax.loss"] == (None, None)


@needs_native
def test_an_op_that_a_backend_has_not_is_refused(monkeypatch):
    monkeypatch.setitem(_table._kernels, "entmax", [])
    x = torch.zeros(2, 3)
    assert torch.allclose(fy.entmax(x), torch.full((2, 3), 1 / 3))
    with fy.use_backend("native"), pytest.raises(fy.FenchelError) as error:
        fy.entmax(x)
    assert str(error.value) == "use_backend('native'): it has no entmax; leave the `with` block."


def test_another_backend_is_asked_in_order_of_rank(monkeypatch):
    """A backend is files that register themselves: nothing else is edited."""
    monkeypatch.setattr(_table, "_backends", dict(_table._backends))
    monkeypatch.setattr(_table, "_kernels", {op: [*_table._kernels[op]] for op in _table._kernels})
    mine = _table.Backend(
        "mine",
        -1,
        ("cpu",),
        serves=lambda x: x.shape[-1] == 2,
        refusal=lambda x: f"expected rows of 2 entries, but got {x.shape[-1]}.",
        about="it is for this test.",
    )

    @_table.implements("entmax", mine)
    def halves(x, parameter, dim):
        return torch.full_like(x, 0.5)

    assert fy.entmax(torch.tensor([9.0, 0.0])).tolist() == [0.5, 0.5]
    assert fy.entmax(torch.tensor([9.0, 0.0, 0.0])).tolist() == [1.0, 0.0, 0.0]
    assert fy.backends().ops["entmax"][0] == "mine"
    with fy.use_backend("mine"), pytest.raises(fy.FenchelError) as error:
        fy.entmax(torch.zeros(3))
    assert str(error.value) == "use_backend('mine'): expected rows of 2 entries, but got 3."
    with pytest.raises(fy.FenchelError) as error:
        fy.use_backend("cuda")
    assert str(error.value) == (
        "use_backend: expected 'mine', 'native' or 'reference', but got 'cuda'."
    )


@needs_native
def test_rows_too_long_for_the_core_go_to_the_reference(monkeypatch):
    monkeypatch.setattr(_backend, "_TOO_LONG", 4)
    x = torch.zeros(2, 4)
    assert kernel_for("entmax", x) is None
    assert kernel_for("entmax", x[:, :3]) is not None
    with fy.use_backend("native"), pytest.raises(fy.FenchelError, match=r"fewer than 2\*\*31"):
        fy.sparsemax(x)


@needs_native
def test_native_reports_its_instruction_set():
    report = fy.backends()
    assert report.active == "native"
    assert report.instruction_set in ("avx512", "avx2", "baseline")
    assert report.reason == f"the native core runs on {report.instruction_set}."


def test_environment_disables_the_core():
    code = "import fenchel as fy; b = fy.backends(); print(b.active, b.reason); fy.entmax15"
    said = run_python(code, FENCHEL_NATIVE="0")
    assert said == "reference the native core is disabled by FENCHEL_NATIVE=0."
    refused = run_python(
        "import fenchel as fy\ntry:\n    fy.use_backend('native')\n"
        "except fy.FenchelError as error:\n    print(error)",
        FENCHEL_NATIVE="0",
    )
    assert refused == "use_backend('native'): the native core is disabled by FENCHEL_NATIVE=0."


def test_an_unknown_instruction_set_is_refused():
    code = "import fenchel as fy; print(fy.backends().active, fy.backends().reason)"
    said = run_python(code, FENCHEL_INSTRUCTION_SET="avx9")
    wanted = "FENCHEL_INSTRUCTION_SET must be baseline, avx2 or avx512, but it is 'avx9'."
    assert said == f"reference {wanted} {SLOWER}"


def test_a_missing_library_is_named(tmp_path):
    code = "import fenchel as fy; print(fy.backends().reason)"
    said = run_python(code, FENCHEL_LIBRARY=str(tmp_path / "libnowhere.so"))
    missing = "the native core was not found (no libnowhere.so beside fenchel's kernels)."
    assert said == f"{missing} {SLOWER}"


CALLS_TWICE = """
import warnings, torch
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    import fenchel as fy
    {before}
    print(len(seen))
    fy.sparsemax(torch.zeros(3))
    fy.MAP(fy.KSubsets(1)).predict(torch.zeros(3))
    for warning in seen:
        print(warning.category.__name__, warning.message)
"""


def test_the_first_call_without_the_core_warns_once(tmp_path):
    library = str(tmp_path / "libnowhere.so")
    said = run_python(CALLS_TWICE.format(before=""), FENCHEL_LIBRARY=library).splitlines()
    assert said == [
        "0",
        "UserWarning fenchel: the native core was not found (no libnowhere.so beside fenchel's "
        f"kernels). {SLOWER} Install a C++17 compiler with OpenMP and reinstall fenchel, or set "
        "FENCHEL_NATIVE=0 to go on without this warning.",
    ]


def test_who_asked_for_the_reference_is_not_warned(tmp_path):
    assert run_python(CALLS_TWICE.format(before=""), FENCHEL_NATIVE="0") == "0"
    chosen = CALLS_TWICE.format(before="fy.use_backend('reference')")
    assert run_python(chosen, FENCHEL_LIBRARY=str(tmp_path / "libnowhere.so")) == "0"


def test_the_library_is_found_in_every_folder_of_the_package(tmp_path, monkeypatch):
    """As an editable install has it: sources in one folder, what was built in another."""
    (tmp_path / "libfenchel_core.so").write_text("built")
    monkeypatch.setattr(kernels, "__path__", ["/nowhere", str(tmp_path)])
    assert _library.find("libfenchel_core.so") == tmp_path / "libfenchel_core.so"
    assert _library.find("other.so") is None


def test_a_broken_library_is_reported(tmp_path):
    broken = tmp_path / "libbroken.so"
    broken.write_text("not a library")
    code = "import fenchel as fy; print(fy.backends().active, fy.backends().reason)"
    said = run_python(code, FENCHEL_LIBRARY=str(broken))
    assert said.startswith("reference the native core could not be loaded (")


@needs_native
@pytest.mark.parametrize("name", ["baseline", "avx2"])
def test_smaller_instruction_sets_agree(name, tmp_path):
    if name == "avx2" and _library.instruction_set() == "baseline":
        pytest.skip("this machine has no AVX2")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 333, generator=generator)
    torch.save(x, tmp_path / "x.pt")
    program = f"""
import torch, fenchel as fy
assert fy.backends().instruction_set == "{name}", fy.backends()
x = torch.load({str(tmp_path / "x.pt")!r})
alphas = (1.0, 1.1, 1.25, 1.3, 1.5, 1.8, 2.0, 4.0)
tensors = (x, x[:, :50], x.double())
out = [f(t, a) for t in tensors for a in alphas for f in (fy.entmax, fy.normmax, fy.sq_pnorm_max)]
out += [f(t, 1 / a) for t in tensors for a in alphas for f in (fy.renyimax, fy.entmax)]
torch.save(out, {str(tmp_path / "out.pt")!r})
"""
    run_python(program, FENCHEL_INSTRUCTION_SET=name)
    alphas = (1.0, 1.1, 1.25, 1.3, 1.5, 1.8, 2.0, 4.0)
    tensors, maps = (x, x[:, :50], x.double()), (fy.entmax, fy.normmax, fy.sq_pnorm_max)
    here = [f(t, a) for t in tensors for a in alphas for f in maps]
    here += [f(t, 1 / a) for t in tensors for a in alphas for f in (fy.renyimax, fy.entmax)]
    for got, expected in zip(torch.load(tmp_path / "out.pt"), here, strict=True):
        torch.testing.assert_close(got, expected, atol=1e-6, rtol=0)


def _in_a_fork(x, queue):
    # torch's own parallel loops hang here, so nothing but the kernel may be large: no filling.
    torch.utils.deterministic.fill_uninitialized_memory = False
    queue.put(fy.entmax15(x)[-1].tolist())


@needs_native
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 warns of fork with threads
def test_a_forked_process_works_after_the_parent_used_threads(threads):
    threads(2)
    x = torch.arange(200_000, dtype=torch.float32).view(-1, 50) / 50
    expected = fy.entmax15(x)[-1].tolist()  # starts the thread pool in this process
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_a_fork, args=(x, queue), daemon=True)
    child.start()
    try:
        assert queue.get(timeout=60) == expected
        child.join(timeout=60)
        assert child.exitcode == 0
    finally:
        child.kill()


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return fy.entmax15(torch.full((600, 100), float(index)) * torch.arange(100.0))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_data_loader_workers():
    loader = torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=2, timeout=60)
    batches = torch.cat(list(loader))
    assert torch.allclose(batches.sum(-1), torch.ones(8, 600))
