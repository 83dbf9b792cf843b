"""The classifier: equations, parameter counts, names in files, and its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import sdssm
from sdssm.errors import DeviceError, ModelError, OutputError, RunError, SdssmError, SettingsError, UnknownNameError
from sdssm.models import Classifier, ModelSettings, get_preset
from sdssm.models.names import load_tensors, tensors_for_file
from sdssm.runs.schema import resolve_settings
from sdssm.tasks import PAPER_TASKS, get_task

#: k n^2 + k (V + 1) + n V + 2 n + C (n + 1), the counts of the published code.
COUNTS = {
    "parity": 33_250,
    "even_pairs": 33_250,
    "cycle": 33_517,
    "arithmetic": 75_019,
    "c2xc4": 25_370,
    "d4": 25_370,
    "a5": 28_750,
    "c2xc30": 45_146,
    "d30": 45_146,
}
#: One model for each choice of the settings; the properties below hold for all of them.
KINDS: dict[str, dict[str, Any]] = {
    "scale-free": {},
    "query": {"query": True},
    "published": {"initial_state": "zero", "input_matrix": True, "rescale": False, "readout": "linear"},
    "published with query": {
        "initial_state": "zero",
        "input_matrix": True,
        "rescale": False,
        "readout": "linear",
        "norm": "affine",
        "query": True,
    },
    "no norm": {"norm": "none", "column_norm": None},
    "mlp": {"readout": "mlp", "hidden": 7, "dropout": 0.5},
    "embedding": {"embedding": 5},
    "skip": {"skip": True},
    "temperature": {"temperature": 0.3},
    "wide": {"width": 9, "query": True},
    "embedding of wide inputs": {"embedding": 5, "embedding_init": "linear", "width": 9, "query": True},
    "stack": {"layers": 2, "embedding": 6},
    "stack of one-hot with query and skip": {"layers": 3, "query": True, "skip": True},
}


def build_model(kind: str, seed: int = 0, classes: int = 5) -> Classifier:
    settings = resolve_settings("sd-ssm", "scale-free", "a5", {"state": 8, "dictionary": 3, **KINDS[kind]})
    model = Classifier(settings.model, n_symbols=3, n_classes=classes, generator=torch.Generator().manual_seed(seed))
    return model.double()


def strings(*shape: int) -> Tensor:
    return torch.randint(0, 3, shape, generator=torch.Generator().manual_seed(9))


# -- as published ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAPER_TASKS)
def test_parameter_counts_of_the_paper(name: str) -> None:
    task = get_task(name)
    settings = resolve_settings("sd-ssm", "paper", name)
    model = Classifier(settings.model, task.n_symbols, task.n_classes, generator=torch.Generator())
    assert sum(parameter.numel() for parameter in model.parameters()) == COUNTS[name]


def test_names_in_files_and_shapes_are_those_of_the_paper() -> None:
    settings = resolve_settings("sd-ssm", "paper", "arithmetic")
    model = Classifier(settings.model, 8, 5, generator=torch.Generator().manual_seed(0))
    shapes = {name: tuple(value.shape) for name, value in tensors_for_file(model).items()}
    assert shapes == {
        "dictionary": (18, 64, 64),
        "selection.weight": (18, 10),
        "selection.bias": (18,),
        "input_matrix": (64, 10),
        "norm.weight": (64,),
        "norm.bias": (64,),
        "readout.weight": (5, 64),
        "readout.bias": (5,),
        "column_norm": (),
        "temperature": (),
    }
    free = Classifier(ModelSettings(), 2, 60, generator=torch.Generator().manual_seed(0))
    assert tensors_for_file(free)["initial_state"].shape == (64,)
    assert free.initial_state is free.get_parameter("layers.0.mixer.initial_state")


def test_logits_follow_the_published_equations() -> None:
    """x_t = A_t x_{t-1} + B u_t with x_0 = 0, y_t = C LayerNorm(A_q x_t + B_q) + c, in a plain loop."""
    settings = resolve_settings("sd-ssm", "paper", "cycle", {"state": 6, "dictionary": 4})
    model = Classifier(settings.model, 3, 5, generator=torch.Generator().manual_seed(1)).double()
    D, S, s, B = (
        model.get_parameter(f"layers.0.mixer.{name}")
        for name in ("dictionary", "selection.weight", "selection.bias", "input_matrix")
    )
    p = 1.3

    def transition(symbol: int) -> tuple[Tensor, Tensor]:
        u = torch.eye(4, dtype=torch.float64)[symbol]
        A = sum(w * D[i] for i, w in enumerate(torch.softmax(S @ u + s, dim=0)))
        assert isinstance(A, Tensor)
        columns = [A[:, j] / (A[:, j].abs() ** p).sum() ** (1 / p) for j in range(6)]
        return torch.stack(columns, dim=1), B @ u

    tokens = [2, 0, 1, 1, 2]
    x, expected = torch.zeros(6, dtype=torch.float64), []
    for token in tokens:
        A, b = transition(token)
        x = A @ x + b
        A_q, b_q = transition(3)
        h = A_q @ x + b_q
        assert model.norm is not None
        h = (h - h.mean()) / torch.sqrt(h.var(unbiased=False) + 1e-5) * model.norm.weight + model.norm.bias
        assert model.readout.bias is not None
        expected.append(model.readout.weight @ h + model.readout.bias)
    # p is stored in float32, which limits the agreement.
    torch.testing.assert_close(model(torch.tensor([tokens]))[0], torch.stack(expected), rtol=1e-6, atol=1e-6)


def test_the_scale_free_readout_is_a_bounded_cosine() -> None:
    model = build_model("scale-free")
    x = torch.randn(50, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    h = x - x.mean(-1, keepdim=True)
    assert model.readout.scale is not None
    cosine = torch.nn.functional.cosine_similarity(h[:, None], model.readout.weight[None], dim=-1)
    torch.testing.assert_close(model.logits(x), cosine * model.readout.scale, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(model.logits(x), model.logits(1000 * x), rtol=1e-4, atol=1e-4)
    projection = model.readout.projection
    assert projection is not None
    with torch.no_grad():
        projection.copy_(torch.randn(8, 8, generator=torch.Generator().manual_seed(1)))
    z = h @ (torch.eye(8, dtype=torch.float64) + projection)
    cosine = torch.nn.functional.cosine_similarity(z[:, None], model.readout.weight[None], dim=-1)
    torch.testing.assert_close(model.logits(x), cosine * model.readout.scale, rtol=1e-6, atol=1e-6)


def test_the_centre_loss_is_zero_exactly_at_the_class_centres() -> None:
    """At the centres of both classes the loss is the cross-entropy; away from them the centre loss is added."""
    model = build_model("scale-free", classes=3)
    labels = torch.tensor([0, 1, 0, 1, 0, 1])
    classes = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)
    for shift in (0.0, 0.1):
        x = torch.eye(8, dtype=torch.float64)[labels]
        h = torch.nn.functional.layer_norm(x, (8,), eps=1e-5) / 8**0.5
        with torch.no_grad():
            model.readout.weight[:2] = h[:2] * (1 + shift)
        plain, _ = model.readout.loss(x, labels, model.norm)
        pulled, _ = model.readout.loss(x, labels, model.norm, attraction=torch.tensor(8.0), classes=classes)
        centre = model.readout.weight[:2].mean(0)
        variance = (model.readout.weight[:2] - centre).square().sum(-1).mean()
        cosine = torch.nn.functional.cosine_similarity(h[:2, None], model.readout.weight[None], dim=-1)
        others = torch.stack([cosine[0, 1:].max(), cosine[1, [0, 2]].max()])
        margin = (cosine.diagonal() - others).clamp(0, 1).mean()  # the two classes are equally frequent
        distance = (shift * h[0]).square().sum()
        torch.testing.assert_close(pulled - plain, 8 * margin * distance / variance, rtol=1e-6, atol=1e-12)


def test_initial_values_as_published() -> None:
    settings = resolve_settings("sd-ssm", "paper", "a5", {"dictionary": 40})
    model = Classifier(settings.model, 2, 60, generator=torch.Generator().manual_seed(0))
    bounds = {"dictionary": (3 / 64) ** 0.5, "selection.weight": 2**-0.5, "selection.bias": 2**-0.5}
    bounds |= {"input_matrix": 2**-0.5, "readout.weight": 1 / 8, "readout.bias": 1 / 8}
    tensors = tensors_for_file(model)
    for name, bound in bounds.items():
        value = tensors[name]
        assert value.abs().max() <= bound
        assert value.abs().max() > 0.9 * bound
        if value.numel() > 1000:
            assert abs(float(value.var()) / (bound**2 / 3) - 1) < 0.05
    free = Classifier(ModelSettings(), 2, 60, generator=torch.Generator().manual_seed(0))
    assert 0.6 < float(free.initial_state.detach().std()) < 1.4


# -- properties of all kinds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_steps_and_pieces_agree_with_the_whole_string(kind: str) -> None:
    model, tokens = build_model(kind).eval(), strings(2, 3, 7)
    all_outputs = model(tokens)
    assert all_outputs.shape == (2, 3, 7, 5)
    state, rows = None, []
    for t in range(7):
        logits, state = model.step(tokens[..., t], state)
        rows.append(logits)
    torch.testing.assert_close(torch.stack(rows, dim=-2), all_outputs)
    first, state = model.advance(tokens[..., :3])
    rest, _ = model.advance(tokens[..., 3:], state)
    torch.testing.assert_close(torch.cat([first, rest], dim=-2), all_outputs)
    torch.testing.assert_close(model(tokens[0, 0]), all_outputs[0, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_later_symbols_and_other_rows_have_no_effect(kind: str) -> None:
    model, tokens = build_model(kind).eval(), strings(4, 6)
    other = tokens.clone()
    other[:, 4:] = (other[:, 4:] + 1) % 3
    torch.testing.assert_close(model(tokens)[:, :4], model(other)[:, :4])
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(model(tokens[order]), model(tokens)[order])


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_the_cross_entropy_of_the_last_logits(kind: str) -> None:
    model, tokens = build_model(kind).eval(), strings(6, 5)
    labels = torch.tensor([0, 1, 2, 3, 4, 0])
    lengths = torch.tensor([1, 5, 3, 2, 5, 4])
    logits = model(tokens)
    for cut in (None, lengths):
        last = logits[:, -1] if cut is None else logits[torch.arange(6), cut - 1]
        loss, right = model.loss(tokens, labels, lengths=cut)
        torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(last, labels))
        assert int(right) == int((last.argmax(-1) == labels).sum())


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_agree_with_finite_differences(kind: str) -> None:
    model, tokens, labels = build_model(kind), strings(3, 4), torch.tensor([0, 1, 2])
    loss, _ = model.loss(tokens, labels)
    grads = torch.autograd.grad(loss, list(model.parameters()))
    generator = torch.Generator().manual_seed(4)
    for parameter, grad in zip(model.parameters(), grads, strict=True):
        direction = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
        step, ends = 1e-6, []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.add_(sign * step * direction)
                ends.append(float(model.loss(tokens, labels)[0]))
                parameter.sub_(sign * step * direction)
        assert (grad * direction).sum().item() == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_model_gives_the_same_logits(kind: str, tmp_path: Path) -> None:
    model = build_model(kind).float().eval()
    model.save(tmp_path / "model")
    loaded = sdssm.load(tmp_path / "model")
    assert loaded.settings == model.settings
    torch.testing.assert_close(loaded(strings(2, 9)), model(strings(2, 9)), rtol=0, atol=0)
    assert sorted(file.name for file in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]


def test_the_model_depends_on_the_seed() -> None:
    tokens = strings(1, 5)
    assert torch.equal(build_model("scale-free", 3)(tokens), build_model("scale-free", 3)(tokens))
    assert not torch.equal(build_model("scale-free", 3)(tokens), build_model("scale-free", 4)(tokens))


def test_dropout_follows_the_noise_and_keeps_the_mean() -> None:
    model, tokens, labels = build_model("mlp"), strings(2, 4), torch.tensor([0, 1])
    kept = model.loss(tokens, labels, noise={"readout": torch.ones(2, 7)})[0]
    assert not torch.equal(kept, model.loss(tokens, labels)[0])  # nothing dropped, all entries doubled
    all_dropped = model.loss(tokens, labels, noise={"readout": torch.zeros(2, 7)})[0]
    assert model.readout.bias is not None
    torch.testing.assert_close(all_dropped, torch.nn.functional.cross_entropy(model.readout.bias.expand(2, -1), labels))


def test_a_given_initial_state() -> None:
    settings = resolve_settings("sd-ssm", "scale-free", "a5", {"state": 8, "initial_state": "given"})
    model = Classifier(settings.model, 3, 5, generator=torch.Generator().manual_seed(0))
    with pytest.raises(SettingsError, match="pass state="):
        model(strings(2, 4))
    logits, _ = model.advance(strings(2, 4), (torch.ones(8),))
    assert logits.shape == (2, 4, 5)


def test_length_efficiency_settings() -> None:
    settings = resolve_settings("sd-ssm", "length-efficiency-6", "a5")
    assert (settings.train.train_length, settings.train.validate_length, settings.train.lr) == (6, 40, 7.5e-3)
    model = Classifier(settings.model, 2, 60, generator=torch.Generator().manual_seed(0))
    assert model.vectors is not None
    assert model.vectors.shape == (60, 512)
    assert abs(float(model.vectors.square().sum(1).mean()) - 1) < 0.05
    starts = torch.tensor([3, 59])
    logits, state = model.advance(torch.tensor([[0, 1], [1, 1]]), starts=starts)
    more, _ = model.advance(torch.tensor([[0], [1]]), state)
    all_outputs = model(torch.tensor([[0, 1, 0], [1, 1, 1]]), starts=starts)
    torch.testing.assert_close(torch.cat([logits, more], dim=1), all_outputs)
    with pytest.raises(ModelError, match="starts="):
        model(torch.tensor([[0, 1]]))
    assert "vectors" in model.state_dict()
    assert "vectors" not in dict(model.named_parameters())


# -- invalid input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"initial_state": "zero"}, "every state would be zero"),
        ({"input_matrix": True}, "homogeneous"),
        ({"statee": 3}, "did you mean 'state'"),
        ({"state": "many"}, "state is 'many'; it must be a whole number"),
        ({"state": 0}, "from 1 to 4,096"),
        ({"column_norm": 0.5}, "from 1 to 16"),
        ({"readout": "linnear"}, "did you mean 'linear'"),
        ({"dropout": 0.5}, "only the mlp readout"),
        ({"dropout": 1.0, "readout": "mlp"}, "below 1"),
        ({"temperature": 0.0}, "above 0"),
        ({"scale": -1}, "above 0"),
        ({"state_embedding": 8}, "initial_state=given"),
    ],
)
def test_invalid_settings(values: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        resolve_settings("sd-ssm", "scale-free", "a5", values)


def test_saving_does_not_overwrite_a_run(tmp_path: Path) -> None:
    (run,) = sdssm.train("parity", out=tmp_path, steps=2, settings={"state": 4, "batch": 2}, device="cpu")
    with pytest.raises(OutputError, match="holds a run"):
        sdssm.load(run.path).save(run.path)
    with pytest.raises(OutputError, match="null bytes"):
        build_model("scale-free").save("a\0b")


def test_tokens_of_any_integer_dtype(tmp_path: Path) -> None:
    for kind in ("skip", "stack", "wide"):
        model, tokens = build_model(kind), strings(2, 4)
        torch.testing.assert_close(model(tokens.to(torch.uint8)), model(tokens))
        torch.testing.assert_close(model.step(tokens[:, 0].short())[0], model(tokens)[:, 0])
        for wrong in (-1, 3):
            with pytest.raises(SdssmError, match="symbols are 0..2"):
                model(tokens.fill_(wrong))
            with pytest.raises(SdssmError, match="symbols are 0..2"):
                model.step(torch.tensor([wrong]))


def test_saving_keeps_the_precision(tmp_path: Path) -> None:
    build_model("scale-free").save(tmp_path)
    assert sdssm.load(tmp_path).dictionary.dtype == torch.float64


@pytest.mark.parametrize("kind", ["scale-free", "stack"])
def test_only_files_have_the_names_of_the_paper(kind: str, tmp_path: Path) -> None:
    """In memory a model is an ordinary module; files of a single layer leave out the path to it."""
    model, path = build_model(kind), "layers.0.mixer."
    module_names = {name for name, _ in [*model.named_parameters(), *model.named_buffers()]}
    assert module_names == set(model.state_dict())
    assert {path + "dictionary", path + "temperature", "readout.weight"} <= module_names
    in_files = {name.removeprefix(path) for name in module_names} if kind == "scale-free" else module_names
    model.save(tmp_path)
    assert set(load_file(tmp_path / "model.safetensors")) == set(tensors_for_file(model)) == in_files


def test_tensors_go_into_a_model_by_their_names_in_files() -> None:
    source, model = build_model("scale-free", seed=1), build_model("scale-free", seed=2)
    load_tensors(model, tensors_for_file(source))
    assert torch.equal(model(strings(2, 5)), source(strings(2, 5)))
    with pytest.raises(RuntimeError, match="Missing"):
        load_tensors(model, {"dictionary": source.dictionary})
    with pytest.raises(RuntimeError, match="Unexpected"):
        load_tensors(model, {**tensors_for_file(source), "dictionaries": source.dictionary})


def test_parameters_of_a_single_layer_are_attributes_of_the_model() -> None:
    model = build_model("scale-free")
    assert model.dictionary is model.get_parameter("layers.0.mixer.dictionary")
    assert model.selection is model.get_submodule("layers.0.mixer.selection")
    assert model.input_matrix is None and model.skip is None
    with pytest.raises(AttributeError):
        model.nothing  # noqa: B018  # the lookup fails
    with pytest.raises(AttributeError):
        build_model("stack").dictionary  # noqa: B018  # two layers have one each


def test_settings_are_validated_on_construction() -> None:
    wrong: list[Any] = [{"layers": 1.5}, {"layers": "2"}]
    for values in wrong:
        with pytest.raises(SettingsError, match="it must be"):
            ModelSettings(**values)
    with pytest.raises(SettingsError, match="n_classes is 0"):
        Classifier(ModelSettings(), 2, 0, generator=torch.Generator())


def test_none_is_accepted_for_settings_that_are_words() -> None:
    assert resolve_settings("sd-ssm", "scale-free", "a5", {"norm": None}).model.norm == "none"
    assert resolve_settings("sd-ssm", "scale-free", "a5", {"column_norm": None}).model.mixer.column_norm is None


def test_loading_onto_an_unknown_device_is_refused(tmp_path: Path) -> None:
    build_model("scale-free").float().save(tmp_path)
    assert next(sdssm.load(tmp_path, device="auto").parameters()).device.type in ("cpu", "cuda")
    with pytest.raises(DeviceError, match="no device 'tpu'"):
        sdssm.load(tmp_path, device="tpu")
    with pytest.raises(RunError, match="config.json is a file; pass the folder that it is in"):
        sdssm.load(tmp_path / "config.json")


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'paper'"):
        get_preset("papper", "sd-ssm", "a5")
    with pytest.raises(UnknownNameError, match="no model 'sdsm'"):
        get_preset("paper", "sdsm", "a5")
    with pytest.raises(SettingsError, match="no settings for sd-ssm on d30"):
        get_preset("readme", "sd-ssm", "d30")
    with pytest.raises(ModelError, match="need 4"):
        Classifier(ModelSettings(width=3, query=True), 3, 5, generator=torch.Generator())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "cannot be read"),
        (lambda folder: (folder / "config.json").write_text("[]"), "does not describe a model"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no model.safetensors"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"12"), "cannot be read"),
        (lambda folder: build_model("query", classes=4).save(folder.parent / "other"), None),
    ],
)
def test_folders_without_a_model_are_refused(change: Any, words: str | None, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    build_model("scale-free").float().save(folder)
    change(folder)
    if words is None:
        (tmp_path / "other" / "model.safetensors").replace(folder / "model.safetensors")
        words = "does not hold the model"
    with pytest.raises(ModelError, match=words):
        sdssm.load(folder)


@pytest.mark.parametrize("tokens", [torch.tensor([[0.7, 1.9]]), [0, 1]])
def test_tokens_that_are_no_whole_numbers_are_refused(tokens: Any) -> None:
    with pytest.raises(ModelError, match="pass a tensor of whole numbers"):
        build_model("scale-free")(tokens)
