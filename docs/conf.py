"""Sphinx configuration. ``make docs`` builds strictly: every warning is an error."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.logging import getLogger
from sphinx.writers.html5 import HTML5Translator

import fenchel

logger = getLogger(__name__)
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "examples"), str(HERE)]

import declared  # noqa: E402  (beside this file)

project = "fenchel"
author = "fenchel contributors"
copyright = author
version = release = fenchel.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
# What is not a page is a part of one.
exclude_patterns = ["_build", "benchmarks*.md", "evidence_*.md", "language_model.md"]
nitpicky = True
nitpick_ignore_regex = [
    # Names of Python and torch: without network there is no inventory to link them to.
    (r"py:class", r"collections\.abc\..*|pathlib\.Path"),
    (r"py:(class|func)", r"torch\.(Tensor|_C\.Generator|Size|softmax|nn\.Softmax)"),
    (r"py:(class|func)", r"torch\.distributions\..*"),
    (r"py:class", r"torch\.nn\.parameter\.Parameter|Tensor"),
    (r"py:class", r"torch\.nn\.modules\.module\.Module"),
    # Types that are not public: what a caller does with them is said where they appear.
    (r"py:class", r"fenchel\.decoding\._(ensemble|bigram)\..*"),
    (r"py:class", r"fenchel\.runs\.(tensors\.GatheredTensors|config_file\.Config)"),
    (r"py:class", r"fenchel\.models\.(_attention\.Keys|_seq2seq\.Decoder(State|Step))"),
    (r"py:class", r"fenchel\.tasks\.tokens\.(BPE|Vocabulary)"),
    (r"py:class", r"fenchel\.structures\.problem\.Problem|fenchel\.tasks\.files\.Line"),
    # What trains is imported when it is called, so that its types are names only.
    (r"py:class", r"(fenchel\.training\..*)?(Ranks|TrainResult)|ModelKind|Note|Path"),
    (r"py:exc", r"fenchel\.runs\.errors\.RankError"),
    (r"py:class", r"sklearn\..*"),
    (
        r"py:class",
        r"fenchel\.maps\._family\.RowMap",
    ),  # what computes a map: a kernel with its autograd
    # not public: Regularizer.from_function says what it has
    (r"py:class", r"(fenchel\.regularizers\._base\.)?UserDefined"),
]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 115  # before type names are shortened

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = f"fenchel {release}"
html_static_path = ["_static"]
html_css_files = ["fenchel.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False


def draw_figures(app: Sphinx) -> None:
    """The pictures come from the same code as those of ``make demo-maps``."""
    import plot_evidence
    import plot_label_proportions
    import plot_language_model
    import plot_losses
    import plot_maps
    import plot_regularized_attention
    import plot_structures

    galleries = (
        plot_maps,
        plot_losses,
        plot_language_model,
        plot_regularized_attention,
        plot_structures,
        plot_label_proportions,
        plot_evidence,
    )
    for gallery in galleries:
        gallery.draw_all(HERE / "_static" / "figures")


def fill_in(app: Sphinx, name: str, source: list[str]) -> None:
    """What follows from declarations is written by them."""
    source[0] = declared.expand(source[0])


def keep_sentences(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Napoleon takes "word: text" in a property for a type and its description; undo that."""
    if what == "property":
        lines[:] = [*(inspect.getdoc(obj) or "").splitlines(), ""]


def keep_stars(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """A star in (*batch, n) is part of a shape; it begins no emphasis."""
    lines[:] = [re.sub(r"\((?=\*batch)", r"(\\", line) for line in lines]


# Formulas become MathML, which browsers show by themselves: no script, no network.


def mathml(node: nodes.math | nodes.math_block) -> str:
    """The formula of a node. The converter knows a part of LaTeX; it fails on the rest."""
    formula = node.astext().replace(r"\textstyle", "")
    formula = re.sub(r"\\\|(.+?)\\\|", r"{\\lVert \1 \\rVert}", formula)  # indices of a norm
    try:
        return tex2mathml(formula, as_block=isinstance(node, nodes.math_block))
    except MathError as error:
        logger.warning("formula %r: %s", formula, error, location=node)
        return ""


def visit_math(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(mathml(node))
    raise nodes.SkipNode


def visit_math_block(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(f'<div class="formula">{mathml(node)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    app.connect("builder-inited", draw_figures)
    app.connect("source-read", fill_in)
    app.connect("autodoc-process-docstring", keep_sentences, priority=600)  # napoleon's is 500
    app.connect("autodoc-process-docstring", keep_stars, priority=600)
