"""`check_model` and `law_tests`: what they accept, and what they say of a model that breaks a law."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

import sdssm
from sdssm.errors import ModelError, SdssmError, SettingsError
from sdssm.layers.recurrent import Rnn
from sdssm.models import wrap_module
from sdssm.models.registry import forget
from sdssm.testing import LawError, LawTest, check_model, law_tests
from tests.test_package import FILES
from tests.testing import modules
from tests.testing.modules import C, V

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL: dict[str, Any] = {"state": 4}
FEW = ["shapes", "causal", "saving", "replicas"]


@pytest.mark.parametrize("check", [*law_tests(modules.GRU), *law_tests("lstm", settings=SMALL, sizes=[(1, 2)])])
def test_a_test_for_each_law(check: LawTest) -> None:
    """As in the test suite of a plug-in: pytest names each law, and skips those that do not apply."""
    check()


def test_the_tests_have_plain_names(request: pytest.FixtureRequest) -> None:
    names = {item.name for item in request.session.items if item.name.startswith("test_a_test_for_each_law")}
    tests = [*law_tests(modules.GRU), *law_tests("lstm", sizes=[(1, 2)])]
    expected = {f"test_a_test_for_each_law[{test.__name__}]" for test in tests}
    if len(names) < len(expected):
        pytest.skip("only some of the tests were selected")
    assert names == expected
    assert [test.__name__ for test in law_tests(modules.GRU, laws=["grad mode"])] == [
        "GRU-grad-mode-2-symbols-2-classes",
        "GRU-grad-mode-3-symbols-5-classes",
    ]


def test_laws_may_be_given_by_an_iterator_but_not_by_a_string() -> None:
    assert [test.law.name for test in law_tests("lstm", laws=iter(["causal", "rows"]), sizes=[(2, 2), (3, 3)])] == [
        "causal",
        "rows",
    ] * 2
    with pytest.raises(SettingsError, match=re.escape("laws is 'causal'; pass a list, as in laws=['causal']")):
        law_tests("lstm", laws="causal")


def test_infinite_logits_break_one_law() -> None:
    class Logarithm(nn.Module):
        def forward(self, tokens: Tensor) -> Tensor:
            return one_hot(tokens.cumsum(1) % 2, 2).float().log()

    with pytest.raises(LawError) as caught:
        check_model(Logarithm(), sizes=[(2, 2)])
    assert [result.name for result in caught.value.results] == ["finite"]


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (modules.CausalTransformer, {}),
        (lambda n_symbols, n_classes: nn.Embedding(n_symbols, n_classes), {}),
        (modules.WholeString, {}),
        ("tests.testing.modules:GRU", {}),
        (f"{Path(modules.__file__)}:GRU", {}),
        ("sd-ssm", {"settings": {"state": 4, "dictionary": 2}}),
        (Rnn, {"settings": SMALL}),
    ],
)
def test_whatever_names_a_model_can_be_checked(model: Any, options: dict[str, Any]) -> None:
    results = check_model(model, laws=FEW, **options)
    assert [result.name for result in results] == FEW
    assert results[0].passed


def test_a_mixer_of_ones_own_is_checked_inside_our_classifier() -> None:
    class ForgetfulRnn(Rnn):
        name = "forgetful-rnn"

        def mix_step(self, u: torch.Tensor, state: Any = None) -> Any:
            return super().mix_step(u, None)

    try:
        assert check_model(ForgetfulRnn, settings=SMALL, laws=["causal", "rows"])[0].passed
        with pytest.raises(
            LawError, match="forgetful-rnn breaks the law 'chunks' with .* when the string is read by step"
        ):
            check_model(ForgetfulRnn, settings=SMALL, sizes=[(V, C)])
    finally:
        forget("forgetful-rnn")


def test_a_module_is_checked_for_its_own_sizes() -> None:
    module = modules.GRU()
    results = check_model(module, sizes=[(V, C)])
    assert {result.passed for result in results} == {True, None}
    assert {result.passed for result in check_model(wrap_module(module, V, C), laws=FEW)} == {True, None}
    with pytest.raises(ModelError, match=r"GRU is a module, so its sizes are not known; pass sizes="):
        check_model(module)
    with pytest.raises(LawError, match=r"'shapes'.*it must be \(3, 7, 6\)"):
        check_model(module, sizes=[(V, C + 1)], laws=["shapes"])


def test_a_broken_law_is_named_with_sizes_and_what_was_observed() -> None:
    with pytest.raises(LawError) as caught:
        check_model(modules.LooksAhead, sizes=[(V, C)], laws=["shapes", "causal"])
    assert str(caught.value).startswith(
        "LooksAhead breaks the law 'causal' with 3 symbols and 5 classes: the prediction for prefix 3 changes by "
    )
    assert [result.name for result in caught.value.results] == ["causal"]
    assert isinstance(caught.value, AssertionError) and isinstance(caught.value, SdssmError)
    with pytest.raises(
        LawError, match=r"breaks 3 laws: 'causal' with .*; 'prefixes' with .*; 'padding' with "
    ) as caught:
        check_model(modules.LooksAhead, sizes=[(V, C)])
    assert "\n" not in str(caught.value)


def test_one_test_fails_and_one_is_skipped() -> None:
    tests = {test.law.name: test for test in law_tests(modules.LooksAhead, sizes=[(V, C)])}
    tests["rows"]()
    with pytest.raises(AssertionError, match="^LooksAhead breaks the law 'causal'"):
        tests["causal"]()
    with pytest.raises(SkipTest, match="reads whole strings only"):
        tests["chunks"]()


def test_sizes_that_a_factory_ignores_are_found() -> None:
    with pytest.raises(LawError, match=r"'shapes' with 2 symbols and 2 classes: it returns shape \(3, 7, 5\)"):
        check_model(lambda n_symbols, n_classes: modules.GRU(), laws=["shapes"])


def test_parameters_of_the_factory_are_settings() -> None:
    widths = []

    def build(n_symbols: int, n_classes: int, width: int = 4) -> nn.Module:
        widths.append(width)
        return nn.Sequential(nn.Embedding(n_symbols, width), nn.Linear(width, n_classes))

    check_model(build, settings={"width": 3}, laws=["shapes"])
    assert widths == [3, 3]
    with pytest.raises(SdssmError, match="there is no setting 'widht'; did you mean 'width'"):
        check_model(build, settings={"widht": 3})
    with pytest.raises(SdssmError, match="the module is built already, so width cannot be set"):
        check_model(build(2, 2), settings={"width": 3}, sizes=[(2, 2)])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("lstn", "there is no model 'lstn'; did you mean 'lstm'"),
        ("tests.testing.nothing:GRU", "cannot be imported|there is no module"),
        (3, "the model is 3; pass a factory"),
        (lambda n_symbols, n_classes: n_classes, "returned 2; it must return an nn.Module"),
        (lambda n_symbols, n_classes: 1 / 0, "cannot be built for 2 symbols and 2 classes: ZeroDivisionError"),
        (lambda n_symbols: None, "the first two must be the number of symbols and of classes"),
    ],
)
def test_what_is_no_model_is_an_error(model: Any, message: str) -> None:
    with pytest.raises(ModelError if not isinstance(model, str) else SdssmError, match=message):
        check_model(model)


def test_checking_a_class_registers_nothing() -> None:
    before = sdssm.list_models()
    check_model(modules.GRU, laws=["shapes"])
    assert sdssm.list_models() == before


def test_a_module_in_training_mode_stays_in_it() -> None:
    module = modules.GRU().train()
    check_model(module, sizes=[(V, C)], laws=["shapes"])
    assert module.training


def test_each_part_of_a_module_keeps_its_mode() -> None:
    module = nn.Sequential(nn.Embedding(2, 3), nn.Dropout().eval())
    check_model(module, sizes=[(2, 3)], laws=["shapes"])
    assert module.training and not module[1].training


def test_a_module_is_not_confused_with_a_registered_model_of_its_name() -> None:
    def build(n_symbols: int, n_classes: int, width: int = 4) -> nn.Module:
        return nn.Sequential(nn.Embedding(n_symbols, width), nn.Linear(width, n_classes))

    sdssm.register(build, name="Sequential")
    try:
        wide = wrap_module(build(V, C, width=7), V, C)
        assert check_model(wide, laws=["saving"])[0].passed
    finally:
        forget("Sequential")


def test_the_package_needs_no_pytest() -> None:
    importing = re.compile(r"^\s*(import|from) _?pytest", re.MULTILINE)
    assert importing.search(Path(__file__).read_text())  # the pattern finds it
    assert not [path for path in FILES if importing.search(path.read_text())]
