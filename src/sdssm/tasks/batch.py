"""Strings with the labels of their prefixes, of one length or padded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch
    from torch import Tensor

#: The label past the end of a string: the default `ignore_index` of `torch.nn.functional.cross_entropy`.
PADDING_LABEL = -100
#: The token past the end of a string: a symbol, so that every embedding accepts it.
PADDING_TOKEN = 0


class Batch(NamedTuple):
    """Strings and the labels of all their prefixes, as int64 tensors.

    tokens: (B, L), the symbols. Past the end of a string they are 0.
    labels: (B, L), the label of the prefix that ends at each position; -1 if that prefix is not a valid string, and
        -100 past the end of the string.
    lengths: (B,), the length of each string.

    A batch is a named tuple, so that `torch.utils.data.DataLoader` can collate, pin and move it.

    >>> import torch
    >>> from sdssm.tasks import get_task
    >>> batch = get_task("parity").sample(2, [3, 1], generator=torch.Generator().manual_seed(0))
    >>> batch.tokens.tolist(), batch.labels.tolist()
    ([[1, 1, 0], [0, 0, 0]], [[1, 0, 0], [0, -100, -100]])
    >>> batch.lengths.tolist(), batch.last_labels.tolist()
    ([3, 1], [0, 0])
    """

    tokens: Tensor
    labels: Tensor
    lengths: Tensor

    @property
    def mask(self) -> Tensor:
        """The positions that have a label, bool (B, L): neither past the end nor at the end of an invalid prefix."""
        return self.labels >= 0

    @property
    def last_labels(self) -> Tensor:
        """The labels of the whole strings, (B,)."""
        return self.labels.gather(-1, self.lengths[..., None] - 1).squeeze(-1)

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on another device."""
        return Batch(*(tensor.to(device) for tensor in self))


def collate_strings(strings: Sequence[Batch]) -> Batch:
    """Pad single strings of any lengths to a batch: the `collate_fn` for a dataset of single strings.

    >>> import torch
    >>> one, two = (Batch(torch.ones(n).long(), torch.ones(n).long(), torch.tensor(n)) for n in (1, 2))
    >>> collate_strings([one, two]).labels.tolist()
    [[1, -100], [1, 1]]
    """
    import torch
    from torch.nn.utils.rnn import pad_sequence

    tokens = pad_sequence([string.tokens for string in strings], batch_first=True, padding_value=PADDING_TOKEN)
    labels = pad_sequence([string.labels for string in strings], batch_first=True, padding_value=PADDING_LABEL)
    return Batch(tokens, labels, torch.stack([string.lengths for string in strings]))
