"""Try a module with an output for every prefix on a few strings: is it causal, and can it continue from a state?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sdssm.errors import ModelError
from sdssm.formatting import count_of
from sdssm.layers.mixer import map_state
from sdssm.models.modes import evaluation_mode
from sdssm.models.randomness import preserved_random_numbers

if TYPE_CHECKING:
    from sdssm.models.wrapped_module import WrappedModule

#: Strings, and symbols of each, that are read to find out whether a module looks ahead.
STRINGS, LENGTH = 3, 33
#: The logits after so many symbols are compared. No number above 1 divides all of them: a module may look ahead inside
#: chunks. After few symbols, because it may look far ahead; after one, because it must read strings of one symbol.
CUTS = (3, 7, 17, 32, 1)
#: Logits that differ by more than this, relative to their size, depend on what was changed; more in low precision.
TOLERANCE = 1e-3
#: A parameter whose entries are all smaller than this may hide what the module reads until it is trained.
SMALL = 0.01


def probe_tokens(model: WrappedModule, strings: int, length: int) -> Tensor:
    """Return random tokens (B, L), with fewer symbols if the model cannot read so many."""
    if model.longest is not None:
        length = max(min(length, model.longest), 1)
    generator = torch.Generator().manual_seed(0)
    return torch.randint(model.n_symbols, (strings, length), generator=generator).to(model.device)


def check_reading(model: WrappedModule) -> None:
    """Raise ModelError if a module with an output for every prefix looks ahead, or continues wrongly from a state.

    Call it again when the weights have changed: a weight of zero can hide what a module reads. It costs about ten
    calls on short strings, and leaves no trace.
    """
    if model.reads == "prefixes":
        with probing(model):
            tokens = probe_tokens(model, STRINGS, LENGTH)
            logits = model._call(tokens)
            problem = _find_look_ahead(model, logits, tokens)
            if problem is not None:
                raise ModelError(f"{model.name} is not causal: {problem}")
            if model.is_recurrent:
                _check_advance(model, logits, tokens)


@torch.no_grad()
def check_causal_when_trained(model: WrappedModule) -> None:
    """Raise ModelError if a module looks ahead with random numbers in place of parameters that are zero or small.

    Readouts and residual branches often start at zero. The model is not to be used afterwards.
    """
    generator, is_changed = torch.Generator().manual_seed(0), False
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.numel() and float(parameter.abs().max()) < SMALL:
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
            is_changed = True
    if not is_changed or model.reads != "prefixes":
        return
    try:
        with probing(model):
            tokens = probe_tokens(model, STRINGS, LENGTH)
            problem = _find_look_ahead(model, model._call(tokens), tokens)
    except ModelError:  # not every module can compute with any weights
        return
    if problem is not None:
        raise ModelError(f"{model.name} is not causal once its weights are no longer zero: {problem}")


@contextmanager
def probing(model: WrappedModule) -> Iterator[None]:
    """Call a module inside the block so that no trace is left: in modes, the caller's random numbers and gradients.

    A module that runs on GPUs only is on one inside the block.
    """
    is_moved = model.needs_gpu and model.device.type == "cpu"
    with evaluation_mode(model.module), torch.no_grad(), preserved_random_numbers():
        try:
            if is_moved:
                model.to("cuda")
            yield
        finally:
            if is_moved:
                model.to("cpu")


def _find_look_ahead(model: WrappedModule, logits: Tensor, tokens: Tensor) -> str | None:
    """Return where a logit depends on later symbols, or on how many there are, and what to do; None if nowhere."""
    cuts = [cut for cut in CUTS if cut < tokens.shape[1]]
    changed = [_change_after(tokens, cut, model.n_symbols) for cut in cuts]
    together = torch.split(model._call(torch.cat(changed)), len(tokens)) if cuts else ()
    for cut, other, part in zip(cuts, changed, together, strict=True):
        differences = {"change": _difference(part[:, :cut], logits[:, :cut])}
        if not differences["change"] <= _tolerance(model, logits):  # on its own: strings of a batch may be mixed
            differences["change"] = _difference(model._call(other)[:, :cut], logits[:, :cut])
        differences["are left out"] = _difference(model._call(tokens[:, :cut]), logits[:, :cut])
        for what, difference in differences.items():
            if not difference <= _tolerance(model, logits):
                return (
                    f"its logits after the first {count_of(cut, 'symbol')} change by {difference:.2g} when later "
                    f"symbols {what}; mask later positions, or return (B, C), logits for the whole string"
                )
    return None


def _check_advance(model: WrappedModule, logits: Tensor, tokens: Tensor) -> None:
    """Raise an error unless `advance` gives the logits of `forward` for a string that is read in pieces."""
    length = tokens.shape[1]
    first = max(1, length // 2)
    state, read = None, list[Tensor]()
    for start, end in ((0, first), (first, min(first + 1, length)), (min(first + 1, length), length)):
        if start < end:
            # The strings change places after each piece: their states must do so too, along the first axis.
            part, state = model._advance_rows(tokens[:, start:end].contiguous(), state)
            read.append(part)
            state, tokens = map_state(lambda x: x.flip(0), state), tokens.flip(0)
            read = [piece.flip(0) for piece in read]
    pieces = torch.cat(read, 1)
    expected = logits.flip(0) if len(read) % 2 else logits
    difference = _difference(pieces, expected)
    if not difference <= _tolerance(model, logits):
        raise ModelError(
            f"{model.name}.advance disagrees with forward: for a string in {count_of(len(read), 'piece')} the logits "
            f"differ by {difference:.2g}; continue from the state, whose first axis is the strings, or rename advance"
        )


def _change_after(tokens: Tensor, cut: int, n_symbols: int) -> Tensor:
    """Return tokens with another symbol at every position from `cut` on."""
    return torch.cat([tokens[:, :cut], (tokens[:, cut:] + 1) % n_symbols], 1)


def _difference(logits: Tensor, others: Tensor) -> float:
    """Return the greatest difference; logits that are not finite in both are equal."""
    return float((logits.nan_to_num() - others.nan_to_num()).abs().max())


def _tolerance(model: WrappedModule, logits: Tensor) -> float:
    precisions = [torch.finfo(value.dtype).eps for value in model.parameters() if value.dtype.is_floating_point]
    size = float(torch.where(logits.isfinite(), logits, 0.0).abs().max()) or 1.0
    return max(TOLERANCE, 4 * max(precisions, default=0.0)) * size
