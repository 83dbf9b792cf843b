"""Find the shortest string that a model misclassifies: read all short strings, then search longer ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from time import monotonic
from typing import Any

from sdssm.checking.exhaustive_search import AllStringsSearch, Error
from sdssm.checking.guided_search import GuidedSearch, SearchedStrings, shorten_error
from sdssm.checking.string_reader import StringReader
from sdssm.formatting import format_symbols
from sdssm.models import TokenModel
from sdssm.progress import TimeLimit
from sdssm.settings import check_at_least
from sdssm.tasks import Task

#: Defaults: the time of the search, the longest strings of it, and how many strings are read one by one.
MAX_SECONDS, LONGEST, MAX_STRINGS = 10.0, 10_000, 1 << 24
#: The longest strings for a model that reads whole strings only, whose memory may grow with the square of the length.
LONGEST_WHOLE = 2_000
#: The method that reads all strings.
ALL_STRINGS = "all strings"
#: Shares of the time at whose end each part of the search stops; what is left shortens the string that was found.
SHARES = {ALL_STRINGS: 0.5, "transitions": 0.55, "random and repeated words": 0.75, "smallest margins": 0.9}
#: Symbols of a string that `describe` prints.
MOST_SYMBOLS = 40


@dataclass(frozen=True, kw_only=True)
class MisclassifiedSearch:
    """The shortest misclassified string that a search found, or how far it searched without finding one.

    Only valid strings are judged. The empty string is not judged: a model makes no prediction for it.
    """

    task: str
    string: tuple[int, ...] | None  #: the misclassified string; None if none was found
    symbols: tuple[str, ...] | None  #: the names of its symbols
    label: int | None  #: what the task's machine outputs after it
    prediction: int | None  #: what the model predicts; None if its logits are not finite
    method: str | None  #: the method that found the string
    is_shortest: bool  #: proved: all shorter valid strings were read, and are classified correctly
    #: All valid strings up to this length were read, and are classified correctly. None: no valid string is longer than
    #: those that were read.
    all_strings_up_to: int | None
    searched: tuple[SearchedStrings, ...]  #: how far each method has searched
    #: How many prefixes were left out because another one led machine and model to the same states up to rounding,
    #: which is a heuristic. It concerns the method "smallest margins" only, never `is_shortest`.
    joined: int
    #: How many strings were misclassified symbol by symbol but not as a whole, because of rounding; they do not count.
    unconfirmed: int
    note: str | None  #: why longer strings were not read, if the model failed on them
    seed: int
    seconds: float

    @property
    def length(self) -> int | None:
        """The length of the misclassified string."""
        return None if self.string is None else len(self.string)

    @property
    def strings(self) -> int:
        """How many valid strings were judged, some of them more than once."""
        return sum(part.strings for part in self.searched)

    def describe(self) -> str:
        """Return the result as one sentence."""
        if self.string is None or self.symbols is None:
            return f"no misclassified string was found: {self.describe_search()}"
        names = format_symbols(self.symbols, MOST_SYMBOLS)
        said = "its logits are not finite" if self.prediction is None else f"the model predicts {self.prediction}"
        proof = f"shorter ones may exist: {self.describe_search()}"
        if self.is_shortest:
            proof = f"no shorter one exists{self.describe_reading()}"
        return f"{names!r} (length {len(self.string):,}) has the label {self.label}, but {said}; {proof}"

    def describe_reading(self) -> str:
        """Return how strings were read, in parentheses, if the prediction for some depends on it; or nothing."""
        if not self.unconfirmed:
            return ""
        return f" (read symbol by symbol, but {self.unconfirmed:,} of them are correct only if read as a whole)"

    def describe_search(self) -> str:
        """Return how far the search went, in words."""
        how = self.describe_reading()
        if self.all_strings_up_to is None:
            return f"all valid strings were read{how}"
        parts = [f"all valid strings up to length {self.all_strings_up_to:,} are classified correctly{how}"]
        parts += [f"{part.method} up to length {part.length:,}" for part in self.searched if part.method != ALL_STRINGS]
        return ", then ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values."""
        return {**asdict(self), "length": self.length, "strings": self.strings}


def find_misclassified(
    model: TokenModel,
    task: Task,
    *,
    max_seconds: float = MAX_SECONDS,
    longest: int = LONGEST,
    max_strings: int = MAX_STRINGS,
    seed: int = 0,
) -> MisclassifiedSearch:
    """Search the shortest valid string that a model misclassifies.

    First all valid strings are read, shortest first, as long as half of the time allows. Longer strings are chosen:
    those that take each transition of the task's machine, random ones, repeated words, and for a recurrent model those
    with the smallest difference of the two best logits. From a string that was found pieces are deleted as long as it
    stays misclassified. The rest of the time is spent on reading more of the strings that are shorter.

    Args:
        model: any model; only its predictions, and its state if it has one, are used.
        task: the labels, and which strings are valid.
        max_seconds: about how long to search, without the first call of the model, which may compile code.
        longest: the longest strings that are read; 2,000 symbols are the limit for a model without a state.
        max_strings: the most strings that are read one by one.
        seed: of the random strings. The time decides how many of them are read.

    >>> from sdssm.exact import compile
    >>> from sdssm.tasks import get_task
    >>> only_ones = compile("tomita1")  # accepts strings of ones
    >>> find_misclassified(only_ones, get_task("parity"), max_seconds=1).describe()
    "'0 1' (length 2) has the label 1, but the model predicts 0; no shorter one exists"
    """
    check_at_least("longest", longest, 1)
    check_at_least("max_strings", max_strings, 1)
    reader = StringReader(model, task, TimeLimit(None))
    longest = longest if model.longest is None else min(longest, model.longest)
    longest = longest if model.is_recurrent else min(longest, LONGEST_WHOLE)
    with reader.reading():
        reader.warm_up()
        started = monotonic()
        reader.limit = limit = TimeLimit(max_seconds)
        exhaustive, guided = AllStringsSearch(reader, max_strings), GuidedSearch(reader, longest, seed)
        first = SHARES[ALL_STRINGS] * max_seconds
        exhaustive.read_up_to(longest, TimeLimit(first), first)
        read = reader.strings
        if exhaustive.error is None and not exhaustive.is_complete and exhaustive.length < longest:
            limits = {name: TimeLimit(_left(started, share * max_seconds)) for name, share in SHARES.items()}
            guided.run(exhaustive.length, limits)
            if guided.error is not None:
                guided.error = shorten_error(reader, guided.error, limit, seed)
                before, left = reader.strings, _left(started, max_seconds)
                exhaustive.read_up_to(len(guided.error[0]) - 1, limit, left)
                read += reader.strings - before
    return _result(task, exhaustive, guided, read, seed, monotonic() - started)


def _left(started: float, seconds: float) -> float:
    return max(started + seconds - monotonic(), 0.0)


def _result(
    task: Task,
    exhaustive: AllStringsSearch,
    guided: GuidedSearch,
    read: int,
    seed: int,
    seconds: float,
) -> MisclassifiedSearch:
    error: Error | None = exhaustive.error or guided.error
    names = task.machine.symbol_names
    word = None if error is None else error[0]
    reached = exhaustive.length + (exhaustive.error is not None)
    return MisclassifiedSearch(
        task=task.name,
        string=word,
        symbols=None if word is None else tuple(names[symbol] for symbol in word),
        label=None if error is None else error[1],
        prediction=None if error is None else error[2],
        method=None if error is None else guided.method if exhaustive.error is None else ALL_STRINGS,
        is_shortest=word is not None and len(word) == exhaustive.length + 1,
        all_strings_up_to=None if exhaustive.is_complete else exhaustive.length,
        searched=(SearchedStrings(ALL_STRINGS, reached, read), *guided.searched),
        joined=guided.joined,
        unconfirmed=exhaustive.unconfirmed,
        note=guided.note,
        seed=seed,
        seconds=seconds,
    )
