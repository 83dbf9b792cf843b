"""The loss of the preset "states": its value and gradients, and which settings it needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap

import sdssm
from sdssm.errors import ModelError, SettingsError
from sdssm.layers import SelectiveDense
from sdssm.layers.selective_dense import IDENTITY_NOISE
from sdssm.layers.settings import SelectiveDenseSettings
from sdssm.models import Classifier, ModelSettings
from sdssm.models.state_targets import MOST_CENTRES, MOST_PAIRS, state_loss

#: A machine with a hidden state: two of its four states have the label 1, and one is not used as a label at all.
TABLE, LABELS = torch.tensor([[1, 2, 0], [3, 1, 1], [0, 3, 2], [3, 0, 1]]), torch.tensor([0, 1, 1, 2])
#: The settings that a model with centres needs.
PLAIN: dict[str, Any] = {"norm": "none", "projection": False, "centres": 6}


def build(state: int = 3, dictionary: int = 2, **mixer: Any) -> Classifier:
    """A model with six centres, of which four stand for the states of the machine, in float64."""
    values = {"state": state, "dictionary": dictionary, "initial_dictionary": "identity", "column_norm": None, **mixer}
    settings = ModelSettings(**PLAIN, mixer=SelectiveDenseSettings(**values))
    model = Classifier(settings, 3, 3, generator=torch.Generator().manual_seed(0)).double()
    model.assign_states(LABELS, start=0)
    return model


def draw(batch: int, length: int, *, padded: bool) -> dict[str, Tensor]:
    """Random strings with the states of the machine before and after their last symbols."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(3, (batch, length), generator=generator)
    lengths = torch.randint(1, length + 1, (batch,), generator=generator) if padded else torch.full((batch,), length)
    lengths[0], lengths[-1] = (1, length) if padded else (length, length)
    before: list[int] = []
    states: list[int] = []
    for string, end in zip(tokens.tolist(), lengths.tolist(), strict=True):
        state = 0
        for symbol in string[:end]:
            before[len(states) :] = [state]
            state = int(TABLE[state, symbol])
        states.append(state)
    targets = {"states": torch.tensor(states), "before": torch.tensor(before), "transitions": TABLE}
    return {
        "tokens": tokens,
        "labels": LABELS[targets["states"]],
        **targets,
        **({"lengths": lengths} if padded else {}),
    }


def matrices(model: Classifier) -> Tensor:
    A = model.symbol_matrices()
    assert A is not None
    return A


def string_states(model: Classifier, A: Tensor, strings: dict[str, Tensor], row: int) -> tuple[Tensor, Tensor]:
    """The states of the model before and after the last symbol of a string, one symbol at a time."""
    mixer = model.mixers[0]
    assert isinstance(mixer, SelectiveDense) and mixer.first_state is not None
    rescale = mixer.settings.rescale
    x = previous = mixer.first_state / (mixer.first_state.norm() if rescale else 1.0)
    end = int(strings["lengths"][row]) if "lengths" in strings else strings["tokens"].shape[1]
    for symbol in strings["tokens"][row, :end].tolist():
        previous, x = x, A[symbol] @ x
        x = x / x.norm() if rescale else x
    return previous, x


class Reference:
    """The loss as the docstring of `sdssm.models.state_targets` defines it, with plain loops.

    The gains are those of the parameters with which it is built: the gradient takes them as constant.
    """

    def __init__(self, model: Classifier, strings: dict[str, Tensor], next_state: float) -> None:
        self.model, self.strings, self.next_state = model, strings, next_state
        readout, before = model.readout, strings["before"].tolist()
        self.centres = [row / row.norm() for row in readout.weight[: len(TABLE)]]  # the others are not used
        symbols = len(TABLE[0])
        fits = TABLE.numel() <= MOST_CENTRES
        #: The states of the automaton that own states, and centres, stand for.
        self.states = (
            before[: MOST_PAIRS // symbols],
            list(range(len(TABLE))) if fits else before[: MOST_CENTRES // symbols],
        )
        with torch.no_grad():
            self.gains = [[_geometric_mean_norm(vectors) for vectors in moved] for moved in self._moved()]

    def _moved(self) -> list[list[list[Tensor]]]:
        """A_a x for own states and for centres x, by symbol and row."""
        A = matrices(self.model)
        own = [string_states(self.model, A, self.strings, row)[0] for row in range(len(self.states[0]))]
        return [[[a @ x for x in rows] for a in A] for rows in (own, [self.centres[q] for q in self.states[1]])]

    def loss(self) -> Tensor:
        scale, A = self.model.readout.scale, matrices(self.model)
        assert scale is not None
        entropies = []
        for row, (before, after) in enumerate(zip(self.strings["before"], self.strings["states"], strict=True)):
            for x, state in zip(string_states(self.model, A, self.strings, row), (before, after), strict=True):
                logits = [scale * (x @ centre) / x.norm() for centre in self.centres]
                entropies.append(torch.stack(logits).exp().sum().log() - logits[int(state)])
        own, centres = (self._distances(*parts) for parts in zip(self._moved(), self.gains, self.states, strict=True))
        return torch.stack(entropies).mean() + self.next_state * (own.mean() + centres.mean(-1).sum())

    def _distances(self, moved: list[list[Tensor]], gains: list[float], states: list[int]) -> Tensor:
        """|A_a x / g_a - c|^2 by symbol and row."""
        rows = [
            [
                (vector / gains[symbol] - self.centres[int(TABLE[state, symbol])]).square().sum()
                for vector, state in zip(vectors, states, strict=True)
            ]
            for symbol, vectors in enumerate(moved)
        ]
        return torch.stack([torch.stack(row) for row in rows])


def _geometric_mean_norm(vectors: list[Tensor]) -> float:
    return math.exp(sum(math.log(float(vector.norm())) for vector in vectors) / len(vectors))


def assert_same_loss(model: Classifier, strings: dict[str, Tensor], next_state: float) -> None:
    loss, expected = fast_loss(model, strings, next_state)[0], Reference(model, strings, next_state).loss()
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-10)


def fast_loss(model: Classifier, strings: dict[str, Tensor], next_state: float) -> tuple[Tensor, Tensor]:
    weight = torch.tensor(next_state, dtype=torch.float64)
    tokens, labels, states, before, transitions = (
        strings[name] for name in ("tokens", "labels", "states", "before", "transitions")
    )
    return state_loss(
        model,
        tokens,
        labels,
        states=states,
        before=before,
        transitions=transitions,
        next_state=weight,
        lengths=strings.get("lengths"),
    )


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("changes", [{}, {"rescale": False}, {"column_norm": 1.2}, {"transition": "sum-one"}])
def test_the_loss_is_that_of_plain_loops(changes: dict[str, Any], padded: bool) -> None:
    model, strings = build(**changes), draw(5, 4, padded=padded)
    for next_state in (0.0, 3.0):
        assert_same_loss(model, strings, next_state)
    predicted = [int(model(string[None, :end])[0, -1].argmax()) for string, end in each_string(strings)]
    correct = sum(p == q for p, q in zip(predicted, strings["labels"].tolist(), strict=True))
    assert int(fast_loss(model, strings, 3.0)[1]) == correct


def each_string(strings: dict[str, Tensor]) -> list[tuple[Tensor, int]]:
    tokens = strings["tokens"]
    ends = strings["lengths"].tolist() if "lengths" in strings else [tokens.shape[1]] * len(tokens)
    return list(zip(tokens, ends, strict=True))


def test_strings_of_one_symbol() -> None:
    model, strings = build(), draw(6, 1, padded=False)
    assert (strings["before"] == 0).all()
    assert_same_loss(model, strings, 3.0)


@pytest.mark.parametrize("limits", [{"MOST_PAIRS": 7}, {"MOST_CENTRES": 11}, {"MOST_PAIRS": 7, "MOST_CENTRES": 10}])
def test_next_states_of_large_batches_and_machines(limits: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the first strings only: two of them with three symbols each are 6 pairs, three are 9."""
    model, strings = build(), draw(9, 3, padded=True)
    whole = float(fast_loss(model, strings, 3.0)[0].detach())
    for name, limit in limits.items():
        for module in ("sdssm.models.state_targets", __name__):
            monkeypatch.setattr(f"{module}.{name}", limit)
    assert_same_loss(model, strings, 3.0)
    assert abs(float(fast_loss(model, strings, 3.0)[0].detach()) - whole) > 1e-3


@pytest.mark.parametrize("padded", [False, True])
def test_gradients_agree_with_finite_differences(padded: bool) -> None:
    """Of the plain loops, with the gains held at their values."""
    model, strings = build(), draw(4, 3, padded=padded)
    reference = Reference(model, strings, 3.0)
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    # The centres and the first state are constant.
    assert {model.file_name(name) for name in trained} == {"dictionary", "selection.weight", "selection.bias"}
    parameters = list(trained.values())
    gradients = torch.autograd.grad(fast_loss(model, strings, 3.0)[0], parameters)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            expected = [central_difference(parameter, entry, reference.loss) for entry in range(parameter.numel())]
            torch.testing.assert_close(gradient.flatten(), torch.tensor(expected).double(), rtol=1e-5, atol=1e-7)
            assert float(gradient.abs().max()) > 1e-4


def central_difference(parameter: Tensor, entry: int, compute: Callable[[], Tensor], step: float = 1e-5) -> float:
    flat = parameter.data.view(-1)
    value, results = float(flat[entry]), []
    for sign in (1, -1):
        flat[entry] = value + sign * step
        results.append(float(compute()))
    flat[entry] = value
    return (results[0] - results[1]) / (2 * step)


def test_an_automaton_has_no_distance_of_next_states() -> None:
    """One-hot states and 0/1 matrices: the next states are centres, and all gains are 1."""
    model = build(state=4, dictionary=3, initial_dictionary="random")
    mixer = model.mixers[0]
    assert isinstance(mixer, SelectiveDense) and mixer.selection.bias is not None
    with torch.no_grad():
        for symbol in range(3):
            mixer.dictionary[symbol] = torch.eye(4)[TABLE[:, symbol]].T
        mixer.selection.weight.copy_(200 * torch.eye(3))  # each symbol selects the matrix of its own number
        mixer.selection.bias.zero_()
        model.readout.weight[:4] = torch.eye(4)
        model.readout.weight[4:] = torch.eye(4)[0]  # centres that are not used would be as near as that of state 0
        model.assign_states(LABELS, start=0)
    strings = draw(50, 9, padded=True)
    with torch.no_grad():
        loss, correct = fast_loss(model, strings, 1000.0)
    assert int(correct) == 50
    assert float(loss) == pytest.approx(math.log(1 + 3 * math.exp(-10)), abs=1e-9)  # cosines 1, 0, 0, 0 times 10
    with torch.no_grad():
        mixer.dictionary[1] *= 7  # a symbol may stretch all states equally
        assert float(fast_loss(model, strings, 1000.0)[0]) == pytest.approx(float(loss), abs=1e-9)
        mixer.dictionary[1][:, 0] *= 2  # but not one state more than the others
        assert float(fast_loss(model, strings, 1000.0)[0]) > float(loss) + 10


def test_models_side_by_side_have_the_losses_of_each_alone() -> None:
    models = [build(), build()]
    strings = [draw(4, 5, padded=True) for _ in models]
    strings[1]["tokens"] = (strings[1]["tokens"] + 1) % 3
    with torch.no_grad():
        for parameter in models[1].parameters():
            parameter.mul_(1.5).add_(0.1)
    tensors = torch.func.stack_module_state(torch.nn.ModuleList(models))

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = models[0]

        def forward(self, inputs: dict[str, Tensor]) -> Tensor:
            return fast_loss(self.model, inputs, 3.0)[0]

    def run(values: dict[str, Tensor], inputs: dict[str, Tensor]) -> Tensor:
        named = {f"model.{name}": value for name, value in values.items()}
        return torch.func.functional_call(Loss(), named, (inputs,))  # type: ignore[no-any-return]  # result of a module

    inputs = {name: torch.stack([part[name] for part in strings]) for name in strings[0]}
    losses = vmap(run)({**tensors[0], **tensors[1]}, inputs)
    for model, part, loss in zip(models, strings, losses, strict=True):
        torch.testing.assert_close(loss, fast_loss(model, part, 3.0)[0], rtol=1e-10, atol=1e-10)


def test_a_model_without_centres_has_no_such_loss() -> None:
    model = Classifier(ModelSettings(), 3, 3, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ModelError, match="no centres for the states of an automaton; set preset=states"):
        fast_loss(model, draw(2, 3, padded=False), 1.0)


# -- the readout and its settings --------------------------------------------------------------------------------------


def test_the_logit_of_a_label_is_that_of_its_nearest_centre() -> None:
    model = build()
    h = torch.randn(7, 3, generator=torch.Generator().manual_seed(2)).double()
    cosines = torch.nn.functional.cosine_similarity(h[:, None], model.readout.weight[None], dim=-1)
    expected = torch.stack([10 * cosines[:, :4][:, label == LABELS].amax(-1) for label in range(3)], -1)
    torch.testing.assert_close(model.readout(h), expected)
    model.readout.assign_centres(torch.tensor([0, 2]))  # label 1 has no centre: it is never predicted
    assert not (model.readout(h).argmax(-1) == 1).any()
    assert model.readout(h)[:, 1].tolist() == [-10.0] * 7


@pytest.mark.parametrize(
    ("changes", "mixer", "message"),
    [
        ({"name": "rnn", "mixer": None}, {}, "model is 'rnn'"),
        ({"layers": 2, "block": "bare"}, {}, "layers is 2"),
        ({"block": "pre-norm"}, {}, "block is 'pre-norm'"),
        ({"readout": "linear"}, {}, "readout is 'linear'"),
        ({"norm": "plain"}, {}, "norm is 'plain'"),
        ({"projection": True}, {}, "projection is True"),
        ({"query": True}, {}, "query is True"),
        ({}, {"input_matrix": True, "rescale": False}, "input_matrix is True"),
        ({}, {"skip": True}, "skip is True"),
    ],
)
def test_settings_that_come_between_a_state_and_its_centre(
    changes: dict[str, Any], mixer: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=f"^{message}, but with centres .* as preset=states does"):
        ModelSettings(**{**PLAIN, "mixer": SelectiveDenseSettings(**mixer), **changes})


def test_strings_start_at_a_centre() -> None:
    with pytest.raises(SettingsError, match="initial_state is 'given', but with centres .*; set initial_state=learned"):
        ModelSettings(**PLAIN, mixer=SelectiveDenseSettings(initial_state="given"))
    model = build(state=5)
    model.assign_states(LABELS, start=2)
    assert model.initial_state is not None and torch.equal(model.initial_state, model.readout.weight[2])
    with torch.no_grad():
        model.readout.assign_centres(torch.tensor([0, 1, 2]))  # the labels alone change
    assert torch.equal(model.initial_state, model.readout.weight[2])


@pytest.mark.parametrize("centres", [0, -1, 65_537])
def test_numbers_of_centres_that_are_refused(centres: int) -> None:
    with pytest.raises(SettingsError, match=f"centres is {centres}"):
        ModelSettings(**{**PLAIN, "centres": centres})


def test_centres_start_as_orthogonal_directions() -> None:
    weight = build(state=4).readout.weight
    torch.testing.assert_close(weight[:4] @ weight[:4].mT, torch.eye(4).double(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(weight.norm(dim=-1), torch.ones(6).double(), rtol=1e-5, atol=1e-5)


def test_a_dictionary_that_starts_at_the_identity() -> None:
    settings = {"state": 16, "dictionary": 5, "column_norm": None}
    random, identity = (
        SelectiveDense(
            7,
            SelectiveDenseSettings(**settings, initial_dictionary=start),  # type: ignore[arg-type]
            generator=torch.Generator().manual_seed(0),
        )
        for start in ("random", "identity")
    )
    expected = torch.eye(16) + IDENTITY_NOISE * random.dictionary
    torch.testing.assert_close(identity.dictionary, expected)
    assert identity.selection.bias is not None and not identity.selection.bias.any()
    # Symbols select matrices more sharply than usual.
    assert bool(identity.selection.weight.std() > 2 * random.selection.weight.std())


def test_a_saved_model_keeps_the_labels_of_its_centres(tmp_path: Path) -> None:
    model = build().float()
    model.save(tmp_path)
    loaded = sdssm.load(tmp_path)
    assert isinstance(loaded, Classifier) and loaded.settings == model.settings
    assert loaded.readout.centre_labels is not None
    assert loaded.readout.centre_labels.tolist() == [0, 1, 1, 2, -1, -1]
    tokens = torch.randint(3, (4, 9), generator=torch.Generator().manual_seed(0))
    assert torch.equal(loaded(tokens), model(tokens))
