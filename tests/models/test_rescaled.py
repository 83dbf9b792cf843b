"""Evaluation of SD-SSMs whose states overflow float32."""

from __future__ import annotations

import pytest
import torch

from sdssm.automata import get_machine
from sdssm.evaluation import evaluate
from sdssm.layers import SelectiveDenseSettings
from sdssm.models import Classifier, ModelSettings
from sdssm.models.rescaled import RescaledModel
from sdssm.runs.schema import resolve_settings
from tests.evaluation.machines import exact


def build_model(name: str, **changed: object) -> Classifier:
    settings = resolve_settings("sd-ssm", "paper", name, {"state": 6, "dictionary": 3, **changed})
    return Classifier(settings.model, 3, 5, generator=torch.Generator().manual_seed(1)).double()


@pytest.mark.parametrize(
    "changed",
    [{}, {"query": True}, {"norm": "plain"}, {"embedding": 4, "embedding_scale": 2.0}, {"readout": "mlp"}],
    ids=str,
)
def test_logits_agree_while_states_are_finite(changed: dict[str, object]) -> None:
    model = build_model("a5", **changed)
    tokens = torch.randint(3, (4, 30), generator=torch.Generator().manual_seed(0))
    rescaled = RescaledModel(model)
    expected = model(tokens)
    first, state = rescaled.advance(tokens[:, :11])
    rest, _ = rescaled.advance(tokens[:, 11:], state)
    torch.testing.assert_close(torch.cat([first, rest], 1), expected, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(
        rescaled.last_logits(tokens[:, 11:], rescaled.advance_state(tokens[:, :11])), expected[:, -1]
    )


def doubling() -> Classifier:
    """Return the parity model of the paper's construction, with matrices multiplied by 2."""
    source = exact(get_machine("parity"))
    mixer = SelectiveDenseSettings(state=2, dictionary=2, column_norm=None, rescale=False)
    settings = ModelSettings(mixer=mixer, norm="plain", readout="linear")
    model = Classifier(settings, 2, 2, generator=torch.Generator().manual_seed(0))
    weights = {name: value for name, value in source.state_dict().items() if name in model.state_dict()}
    model.load_state_dict(weights)
    with torch.no_grad():
        model.dictionary.mul_(2)
    return model.eval()


def test_supported_models_are_linear_up_to_their_norm() -> None:
    assert RescaledModel.supports(build_model("a5"))
    assert not RescaledModel.supports(build_model("a5", norm="none"))
    assert not RescaledModel.supports(build_model("a5", skip=True))
    scale_free = resolve_settings("sd-ssm", "scale-free", "a5").model
    assert not RescaledModel.supports(Classifier(scale_free, 3, 5, generator=torch.Generator().manual_seed(0)))


def test_states_beyond_float32_are_classified_correctly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parity with a state that doubles at every step: its square, which LayerNorm needs, overflows after 64 steps."""
    model = doubling()
    result = evaluate(model, task="parity", max_length=1000, strings=32, device="cpu").runs[0]
    assert result.mean == 100.0
    assert "read by their direction" in str(result.note)
    fresh = evaluate(model, task="parity", lengths=[100, 700], fresh=True, strings=32, device="cpu").runs[0]
    assert fresh.mean == 100.0
    monkeypatch.setattr(RescaledModel, RescaledModel.supports.__name__, lambda model: False)
    plain = evaluate(model, task="parity", max_length=1000, strings=32, device="cpu").runs[0]
    assert plain.first_below_99 is not None
    assert 60 < plain.first_below_99 < 70
