"""How strings are drawn: uniformly, balanced by label, or so that they cover the transitions of the machine."""

from __future__ import annotations

from sdssm.errors import TaskError, did_you_mean

#: The ways to draw the strings of a length; the number of each is its place in this list.
#:
#: uniform: uniform among the valid strings.
#: balanced: the label of the whole string is uniform among the labels that occur at the length, and the string uniform
#:     among the strings with that label.
#: covering: the last transition is uniform among the pairs of a state of `Task.minimal` that strings one symbol shorter
#:     reach, and a symbol that makes the string valid; the rest is uniform among those that reach this state.
SAMPLINGS = ("uniform", "balanced", "covering")
UNIFORM, BALANCED, COVERING = range(3)

#: The samplings that the strings of a batch take in turn when a model is trained with covering strings.
MIXTURE = ("covering", "covering", "balanced", "uniform")
#: The name of the mixture; a string stream takes it beside the names of SAMPLINGS.
MIXED = "mixed"


def validate_sampling(sampling: str, names: tuple[str, ...] = SAMPLINGS) -> str:
    """Return the sampling, or raise TaskError if there is none of this name.

    >>> validate_sampling("balance")
    Traceback (most recent call last):
    sdssm.errors.TaskError: sampling is 'balance'; did you mean 'balanced'?
    """
    if sampling not in names:
        raise TaskError(f"sampling is {sampling!r}; {did_you_mean(str(sampling), names)}")
    return sampling


def sampling_kinds(sampling: str) -> tuple[int, ...]:
    """Return the numbers of the samplings that strings take in turn, as many as MIXTURE has.

    >>> sampling_kinds("balanced"), sampling_kinds("mixed")
    ((1, 1, 1, 1), (2, 2, 1, 0))
    """
    validate_sampling(sampling, (*SAMPLINGS, MIXED))
    names = MIXTURE if sampling == MIXED else (sampling,) * len(MIXTURE)
    return tuple(SAMPLINGS.index(name) for name in names)
