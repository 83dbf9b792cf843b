"""Every model of the catalogue can be exported by `torch.export` and traced by `torch.jit.trace`.

A new model is covered as soon as it is in the catalogue.
"""

from __future__ import annotations

import io
import warnings

import pytest
import torch
from torch import Tensor
from torch.export import Dim

from sdssm import ops
from sdssm.models import MODELS, Classifier
from tests.laws.test_models import build, draw_tokens

#: Models whose recurrence is a registered operator: one node of the graph, for any length.
ANY_LENGTH = ("sd-ssm", "regular-lrnn", "complex-diagonal", "slice")
#: The slice model treats the first symbol separately and needs two more, and torch specialises sizes 0 and 1.
SHORTEST = 4

warns_about_export = pytest.mark.filterwarnings("ignore::FutureWarning")


def build_small(name: str, layers: int = 1) -> Classifier:
    return build(name, layers=layers).float()


def assert_close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    assert expected.std() > 1e-2  # constant logits would agree as well


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ANY_LENGTH])
@warns_about_export
def test_an_exported_program_equals_the_model_for_every_batch_size(name: str) -> None:
    model = build_small(name)
    program = torch.export.export(model, (draw_tokens(2, 2),), dynamic_shapes=({0: Dim("batch", max=4096)},)).module()
    for tokens in (draw_tokens(2, 2, seed=1), draw_tokens(7, 2, seed=2)):
        assert_close(program(tokens), model(tokens))


@pytest.mark.parametrize(("name", "layers"), [*((name, 1) for name in ANY_LENGTH), ("sd-ssm", 2)])
@warns_about_export
def test_linear_recurrences_are_exported_for_every_length(name: str, layers: int) -> None:
    model = build_small(name, layers)
    shapes = ({0: Dim("batch", max=4096), 1: Dim("length", min=SHORTEST, max=100_000)},)
    # Not strict is the default since torch 2.7; before, strict tracing fixes the length.
    program = torch.export.export(model, (draw_tokens(2, 5),), dynamic_shapes=shapes, strict=False).module()
    for tokens in (draw_tokens(3, SHORTEST, seed=1), draw_tokens(5, 70, seed=2)):
        assert_close(program(tokens), model(tokens))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@warns_about_export
def test_a_saved_program_gives_the_same_logits(backend: str) -> None:
    model, file, tokens = build_small("sd-ssm"), io.BytesIO(), draw_tokens(2, 3, seed=1)
    with ops.use_backend(backend):
        program = torch.export.export(model, (draw_tokens(2, 3),))
    has_own_operators = any("sdssm" in str(node.target) for node in program.graph.nodes)
    assert has_own_operators == (backend == "cpu")  # the reference needs torch only
    torch.export.save(program, file)
    file.seek(0)
    assert_close(torch.export.load(file).module()(tokens), model(tokens))


@pytest.mark.parametrize("name", MODELS)
def test_a_traced_model_can_be_saved_and_loaded(name: str) -> None:
    model, file = build_small(name), io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # sizes are recorded as constants, and torch recommends torch.export
        traced = torch.jit.trace(model, (draw_tokens(2, 3),))  # type: ignore[no-untyped-call]  # torch's own
        torch.jit.save(traced, file)
        file.seek(0)
        tokens = draw_tokens(2, 3, seed=1)
        loaded = torch.jit.load(file)  # type: ignore[no-untyped-call]  # torch's own
        assert_close(loaded(tokens), model(tokens))
    assert_close(model(draw_tokens(4, 6)), build_small(name)(draw_tokens(4, 6)))  # nothing of the trace is kept
