"""The laws that every model obeys, by name."""

from __future__ import annotations

from collections.abc import Iterable

from sdssm.errors import SettingsError, UnknownNameError, did_you_mean, format_value
from sdssm.testing import learning_laws, reading_laws, replicas_law, saving_law
from sdssm.testing.law import Law

#: All laws, in the order in which they are checked: what a later one takes for granted comes first.
LAWS: tuple[Law, ...] = (
    Law("shapes", "there are logits for every symbol, or for the string", reading_laws.check_shapes),
    Law("finite", "no prediction is NaN or infinite", reading_laws.check_finite),
    Law("deterministic", "the same string gives the same prediction", reading_laws.check_deterministic),
    Law("rows", "the strings of a batch do not influence each other", reading_laws.check_rows),
    Law("causal", "later symbols do not change a prediction", reading_laws.check_causal),
    Law("prefixes", "a prefix is predicted as the string that it is", reading_laws.check_prefixes),
    Law("chunks", "reading a string in pieces equals reading it at once", reading_laws.check_chunks),
    Law("padding", "symbols after the end of a string are ignored", learning_laws.check_padding),
    Law("gradients", "gradients are finite at length 500", learning_laws.check_gradients),
    Law("grad mode", "recording gradients does not change a prediction", reading_laws.check_grad_mode),
    Law("training mode", "training mode does not change a later evaluation", learning_laws.check_training_mode),
    Law("saving", "a saved and loaded model predicts the same", saving_law.check_saving),
    Law("symbols", "symbols outside the alphabet are refused", reading_laws.check_symbols),
    Law("replicas", "models trained at once learn as they do alone", replicas_law.check_replicas, needs_factory=True),
)


def find_laws(laws: Iterable[str | Law] | None) -> tuple[Law, ...]:
    """Return laws by their names, or all of them.

    >>> [law.title for law in find_laws(["causal"])]
    ['later symbols do not change a prediction']
    """
    if laws is None:
        return LAWS
    if isinstance(laws, str):
        raise SettingsError(f"laws is {format_value(laws)}; pass a list, as in laws=[{laws!r}]")
    known, chosen = {law.name: law for law in LAWS}, tuple(laws)
    for law in chosen:
        if isinstance(law, str) and law not in known:
            raise UnknownNameError(f"there is no law {law!r}; {did_you_mean(law, known)}")
    return tuple(known[law] if isinstance(law, str) else law for law in chosen)
