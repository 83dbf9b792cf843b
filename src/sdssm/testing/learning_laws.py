"""Laws on the loss and its gradients, and on training mode."""

from __future__ import annotations

import torch

from sdssm.testing.law import LawBroken
from sdssm.testing.law_case import LawCase, describe_largest, require, require_close
from sdssm.testing.reading_laws import FAR, SHORT


def check_padding(case: LawCase) -> str:
    """Change the symbols after the end of strings of different lengths, and compare with the strings alone."""
    require(not case.reads_strings, "it returns (B, C), so the strings of a batch have one length and no padding")
    length = case.length(SHORT)
    tokens, labels = case.draw_strings(4, length), case.draw_labels(4)
    lengths = torch.tensor([min(end, length) for end in (3, length, 1, 6)], device=tokens.device)
    loss, largest = case.loss(tokens, labels, lengths), 0.0
    for row, end in enumerate(lengths.tolist()):
        if case.has_other_symbols and end < length:
            changed = case.loss(case.change_symbols(tokens, (row, slice(end, None))), labels, lengths)
            when = f"when the symbols after the end of string {row + 1}, which has {end}, change"
            largest = max(largest, require_close(changed, loss, "the loss", when))
    rows = zip(tokens, labels, lengths.tolist(), strict=True)
    alone = torch.stack([case.loss(string[None, :end], label[None]) for string, label, end in rows])
    when = "when each string is read without the symbols after its end"
    return describe_largest(max(largest, require_close(alone.mean(), loss, "the loss", when)))


def check_gradients(case: LawCase) -> str:
    """Check that the gradient of the loss is finite, and not zero, for strings of length 500."""
    parameters = {name: value for name, value in case.model.named_parameters() if value.requires_grad}
    require(bool(parameters), "it has no parameters to train")
    length = case.length(FAR)
    tokens = case.draw_strings(2, length)
    with torch.enable_grad():
        # Labels that it does not predict: the loss of a perfect model has no gradient.
        labels = (case.read_end(tokens).detach().argmax(-1) + 1) % case.model.n_classes
        loss = case.loss(tokens, labels)
        if not loss.requires_grad:
            raise LawBroken("the loss has no gradient: the logits do not depend on a parameter that is trained")
        gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    largest = 0.0
    for name, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            continue
        if not bool(gradient.isfinite().all()):
            kind = "NaN" if bool(gradient.isnan().any()) else "infinite"
            raise LawBroken(f"the gradient of {case.model.file_name(name)} is {kind} at length {length}")
        largest = max(largest, float(gradient.abs().max()) if gradient.numel() else 0.0)
    if largest == 0 and case.model.n_classes > 1:
        raise LawBroken(f"every gradient is 0 at length {length}")
    return f"the largest is {largest:.1g} at length {length}"


def check_training_mode(case: LawCase) -> str:
    """Compare predictions in evaluation mode before and after a pass in training mode, with the same parameters."""
    tokens, labels = case.draw_strings(3, case.length(SHORT)), case.draw_labels(3)
    logits = case.read(tokens)
    case.model.train()
    try:
        case.loss(tokens.flip(0), labels)
    finally:
        case.model.eval()
    when = "after a pass in training mode that changed no parameter"
    return describe_largest(case.require_same(case.read(tokens), logits, when))
