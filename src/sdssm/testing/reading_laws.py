"""Laws on how a model reads strings."""

from __future__ import annotations

import torch

from sdssm.errors import SdssmError
from sdssm.models import Classifier
from sdssm.testing.law import LawBroken
from sdssm.testing.law_case import LawCase, describe_largest, require

#: Lengths of the strings that most laws read: a short one, of which every symbol is changed, and a longer one.
SHORT, LONG = 9, 64
#: The length at which numbers must be finite, the longest strings of the paper's tests.
FAR = 500
#: A string is read in pieces of these lengths.
PIECES = (1, 6, 4)


def check_shapes(case: LawCase) -> str:
    """Check the shape and the type of the logits for batches of several sizes."""
    sizes = [(3, 7), (1, 7), (2, 1), (1, 1)]
    for batch, length in sizes:
        tokens = case.draw_strings(batch, case.length(length))
        logits = case.read(tokens)
        expected = (batch, tokens.shape[1] if case.reads_prefixes else 1, case.model.n_classes)
        if logits.shape != expected:
            raise LawBroken(
                f"the logits have shape {tuple(logits.shape)} for tokens of shape {tuple(tokens.shape)}; it must be "
                f"{expected}"
            )
    kind = "(B, C)" if case.reads_strings else "(B, L, C)"
    return f"{kind}, {str(logits.dtype).removeprefix('torch.')}"


def check_finite(case: LawCase) -> str:
    """Check that no logit is NaN or infinite, for short and long strings."""
    lengths = sorted({1, case.length(SHORT), case.length(FAR)})
    for length in lengths:
        logits = case.read_end(case.draw_strings(4, length))
        if not bool(logits.isfinite().all()):
            kind = "NaN" if bool(logits.isnan().any()) else "infinite"
            raise LawBroken(f"a prediction after {length} symbols is {kind}")
    return f"after up to {lengths[-1]} symbols"


def check_causal(case: LawCase) -> str:
    """Change one symbol at a time, and compare the predictions for all prefixes before it."""
    _require_prefixes(case)
    require(case.has_other_symbols, "there is only one symbol")
    largest = 0.0
    for length, every in ((SHORT, 1), (LONG, LONG // 2)):
        tokens = case.draw_strings(1, case.length(length))
        logits = case.read(tokens)
        for position in range(tokens.shape[1] - 1, 0, -every):
            changed = case.read(case.change_symbols(tokens, (slice(None), position)))
            when = f"when symbol {position + 1} changes"
            largest = max(largest, case.require_same(changed[:, :position], logits[:, :position], when))
    return describe_largest(largest)


def check_prefixes(case: LawCase) -> str:
    """Compare the prediction for a prefix with that for the same symbols as a whole string."""
    _require_prefixes(case)
    tokens = case.draw_strings(3, case.length(SHORT))
    ends = torch.stack([case.read_end(tokens[:, : end + 1]) for end in range(tokens.shape[1])], 1)
    return describe_largest(case.require_same(ends, case.read(tokens), "when the symbols after it are left out"))


def check_chunks(case: LawCase) -> str:
    """Read strings in pieces, and symbol by symbol, and compare with all at once."""
    _require_recurrent(case)
    tokens = case.draw_strings(3, case.length(sum(PIECES)))
    whole = case.read(tokens)
    largest = case.require_same(case.advance(tokens)[0], whole, "when the string is read by advance")
    pieces = "in pieces of " + ", ".join(map(str, PIECES)) + " symbols"
    for sizes, how in ((PIECES, pieces), ((1,) * tokens.shape[1], "symbol by symbol")):
        state, logits = None, []
        for piece in torch.split(tokens, _cut(sizes, tokens.shape[1]), dim=1):
            part, state = case.advance(piece, state)
            logits.append(part)
        largest = max(largest, case.require_same(torch.cat(logits, 1), whole, f"when the string is read {how}"))
    if tokens.shape[1] > 1:
        middle = tokens.shape[1] // 2
        _, state = case.advance(tokens[:, :middle])
        end = case.read_end(tokens[:, middle:], state)[:, None]
        when = f"when the string is continued after {middle} symbols"
        largest = max(largest, _same_end(case, end, whole, when))
    return describe_largest(max(largest, _check_steps(case, tokens, whole)))


def check_rows(case: LawCase) -> str:
    """Reorder a batch, read its strings alone, and change one of them."""
    tokens = case.draw_strings(4, case.length(SHORT))
    logits = case.read(tokens)
    order = torch.tensor([2, 0, 3, 1], device=tokens.device)
    largest = case.require_same(case.read(tokens[order])[order.argsort()], logits, "when the batch is reordered")
    for row in range(len(tokens)):
        alone = case.read(tokens[row : row + 1])
        change = case.require_same(alone, logits[row : row + 1], "when it is read alone", string=row)
        largest = max(largest, change)
    if case.has_other_symbols:
        changed = case.read(case.change_symbols(tokens, -1))
        largest = max(largest, case.require_same(changed[:-1], logits[:-1], f"when string {len(tokens)} changes"))
    return describe_largest(largest)


def check_deterministic(case: LawCase) -> str:
    """Read the same strings twice, with other strings and other random numbers in between."""
    tokens = case.draw_strings(3, case.length(SHORT))
    logits = case.read(tokens)
    torch.rand(17)  # the next random numbers of the program are different ones
    case.read(tokens.flip(0))
    return describe_largest(case.require_same(case.read(tokens), logits, "when the same strings are read again"))


def check_grad_mode(case: LawCase) -> str:
    """Compare predictions with and without the recording of gradients."""
    tokens = case.draw_strings(3, case.length(SHORT))
    with torch.no_grad():
        logits = case.read(tokens)
    with torch.enable_grad():
        recorded = case.read(tokens).detach()
    return describe_largest(case.require_same(recorded, logits, "when gradients are recorded"))


def check_symbols(case: LawCase) -> str:
    """Check that a symbol outside the alphabet is an error; a prediction for it would be meaningless."""
    require(isinstance(case.model, Classifier), "a module checks its symbols itself")
    tokens = case.draw_strings(1, case.length(SHORT))
    for symbol in (-1, case.model.n_symbols):
        tokens[0, -1] = symbol
        try:
            case.model(tokens)
        except SdssmError:
            continue
        raise LawBroken(f"the symbol {symbol} is read, but symbols are 0..{case.model.n_symbols - 1}")
    return f"symbols are 0..{case.model.n_symbols - 1}"


def _check_steps(case: LawCase, tokens: torch.Tensor, whole: torch.Tensor) -> float:
    """Compare the single steps of a classifier, which have code of their own, with all at once."""
    if not isinstance(case.model, Classifier) or case.model.settings.state_embedding is not None:
        return 0.0
    state, logits = None, []
    for token in tokens.unbind(1):
        step, state = case.model.step(token, state)
        logits.append(step)
    return case.require_same(torch.stack(logits, 1), whole, "when the string is read by step")


def _same_end(case: LawCase, end: torch.Tensor, whole: torch.Tensor, when: str) -> float:
    """Compare predictions for whole strings with the last ones of `whole`, (B, 1, C)."""
    padded = torch.cat([whole[:, :-1], end], 1)  # so that the message names the right prefix
    return case.require_same(padded, whole, when)


def _cut(sizes: tuple[int, ...], length: int) -> list[int]:
    """Return sizes that sum to `length`: the first of these, with the last one cut."""
    cut: list[int] = []
    for size in sizes:
        cut.append(min(size, length - sum(cut)))
    return [size for size in cut if size] or [length]


def _require_prefixes(case: LawCase) -> None:
    require(not case.reads_strings, "it returns (B, C), so it reads each prefix as a string of its own")
    require(case.reads_prefixes, "it cannot read all prefixes at once, and reads each as a string of its own")


def _require_recurrent(case: LawCase) -> None:
    require(not case.reads_strings, "it returns (B, C), so it reads whole strings only")
    require(case.model.is_recurrent, "it has no state (no advance(tokens, state)), so it reads whole strings only")
