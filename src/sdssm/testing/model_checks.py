"""Check the models of a factory against all laws: in one call, or as one test for each law."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import SkipTest

from sdssm.errors import ModelError
from sdssm.testing.catalogue import find_laws
from sdssm.testing.law import Law, LawResult
from sdssm.testing.law_checks import check_law
from sdssm.testing.model_under_test import ModelUnderTest, find_model_under_test


class LawError(ModelError, AssertionError):
    """A model breaks a law. `results` are the results of the laws that it breaks."""

    def __init__(self, message: str, results: Sequence[LawResult]) -> None:
        super().__init__(message)
        self.results = tuple(results)


@dataclass(frozen=True, repr=False)
class LawTest:
    """One law for one model: call it to check. pytest shows it by its name, such as GRU-causal-2-symbols-3-classes."""

    law: Law
    model: ModelUnderTest = field(hash=False)
    n_symbols: int
    n_classes: int
    seed: int = 0

    @property
    def __name__(self) -> str:
        law = self.law.name.replace(" ", "-")
        return f"{self.model.name}-{law}-{self.n_symbols}-symbols-{self.n_classes}-classes"

    def __repr__(self) -> str:
        return self.__name__

    def __call__(self) -> None:
        """Raise `LawError` if the model breaks the law, and `unittest.SkipTest` if the law does not apply."""
        result = self.check()
        if result.passed is None:
            raise SkipTest(result.detail)
        if not result.passed:
            raise LawError(f"{self.model.name} breaks the law {self._describe(result)}", [result])

    def check(self) -> LawResult:
        """Check the model against the law."""
        model = self.model.build(self.n_symbols, self.n_classes, self.seed)
        another = (
            (lambda seed: self.model.builder(self.n_symbols, self.n_classes, seed)) if self.model.is_factory else None
        )
        return check_law(self.law, model, seed=self.seed, build_another=another)

    def _describe(self, result: LawResult) -> str:
        return f"{self.law.name!r} with {self.n_symbols} symbols and {self.n_classes} classes: {result.detail}"


def law_tests(
    model: Any,
    *,
    sizes: Sequence[tuple[int, int]] | None = None,
    settings: Mapping[str, Any] | None = None,
    laws: Iterable[str | Law] | None = None,
    seed: int = 0,
) -> tuple[LawTest, ...]:
    """Return one test for each law and size, for `pytest.mark.parametrize`; the arguments are those of `check_model`.

    The models are built when a test is called, not before. A law that does not apply is skipped.

    >>> law_tests("lstm", laws=["causal", "chunks"], sizes=[(2, 3)])
    (lstm-causal-2-symbols-3-classes, lstm-chunks-2-symbols-3-classes)
    """
    subject = find_model_under_test(model, sizes, settings)
    chosen = find_laws(laws)
    return tuple(LawTest(law, subject, *size, seed) for size in subject.sizes for law in chosen)


def check_model(
    model: Any,
    *,
    sizes: Sequence[tuple[int, int]] | None = None,
    settings: Mapping[str, Any] | None = None,
    laws: Iterable[str | Law] | None = None,
    seed: int = 0,
) -> tuple[LawResult, ...]:
    """Check a model against all laws; raise `LawError`, an AssertionError, that names each law that it breaks.

    Args:
        model: a class or function (n_symbols, n_classes) -> module, a mixer, an import path, a name of
            `sdssm.list_models()`, or a module.
        sizes: pairs (n_symbols, n_classes) to build it for; needed for a module, which has them already.
        settings: settings of the model, such as {"width": 16}.
        laws: the laws or their names; None: all.
        seed: the seed of the parameters and of the strings.

    Returns one result for each law, of the first of the sizes to which it applies.

    >>> from torch import nn
    >>> for result in check_model(lambda n_symbols, n_classes: nn.Embedding(n_symbols, n_classes))[:2]:
    ...     print(result.name, result.passed, result.detail, sep="; ")
    shapes; True; (B, L, C), float32
    finite; True; after up to 500 symbols
    """
    checked = [(test, test.check()) for test in law_tests(model, sizes=sizes, settings=settings, laws=laws, seed=seed)]
    failed = [(test, result) for test, result in checked if result.passed is False]
    if failed:
        name = failed[0][0].model.name
        details = "; ".join(test._describe(result) for test, result in failed)
        count = "the law" if len(failed) == 1 else f"{len({result.name for _, result in failed})} laws:"
        raise LawError(f"{name} breaks {count} {details}", [result for _, result in failed])
    results: dict[str, LawResult] = {}
    for _, result in checked:
        known = results.get(result.name)
        if known is None or known.passed is None:
            results[result.name] = result
    return tuple(results.values())
