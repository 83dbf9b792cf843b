"""Read many symbols at a time: the matrices of all words of m symbols, multiplied out once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch import Tensor

from sdssm import ops
from sdssm.models import Classifier, TokenModel

#: Limit on the bytes of all word matrices, so that they stay in the processor's cache: longer words need fewer steps,
#: but their matrices are slower to fetch.
MOST_BYTES = 1 << 22
#: Limit on the symbols of a word, which must divide a block of test strings.
LONGEST_WORD = 16


def is_matrix_product(model: TokenModel) -> TypeGuard[Classifier]:
    """Whether the state of a model is multiplied by one matrix for each symbol, and nothing is added to it."""
    return (
        isinstance(model, Classifier)
        and model.is_single_sd_ssm
        and model.input_matrix is None
        and model.initial_state is not None
    )


@dataclass(frozen=True, eq=False)
class WordMatrices:
    """The matrices of all words of `m` symbols, (V^m, N, N).

    The index of a word counts its first symbol most.

    >>> from sdssm.exact import compile
    >>> words = WordMatrices.build(compile("parity"))
    >>> words.m, words.matrices.shape
    (16, torch.Size([65536, 2, 2]))
    """

    matrices: Tensor
    m: int
    powers: Tensor  # (m,): the weight of each symbol in the index of a word
    rescale: bool

    @classmethod
    def build(cls, model: TokenModel) -> WordMatrices | None:
        """Multiply out the words of a model, or return None if its state is not a product of matrices."""
        if not is_matrix_product(model):
            return None
        with torch.no_grad():
            A = model.symbol_matrices()
        assert A is not None
        n_symbols, n = A.shape[0], A.shape[-1]
        m = 1
        while 2 * m <= LONGEST_WORD and n_symbols ** (2 * m) * n * n * A.element_size() <= MOST_BYTES:
            m *= 2
        rescale = bool(model.settings.mixer.rescale)
        symbols = A.double()
        words = torch.eye(n, dtype=torch.float64, device=A.device)[None]
        for _ in range(m):
            words = (symbols[None] @ words[:, None]).flatten(0, 1)  # the new symbol counts least
            if rescale:  # the scale of a word does not matter then; kept near 1, it neither overflows nor vanishes
                words = words / words.norm(dim=(1, 2), keepdim=True) * n**0.5
        powers = n_symbols ** torch.arange(m - 1, -1, -1, device=A.device)
        return cls(words.to(A.dtype).contiguous(), m, powers, rescale)

    def advance_state(self, tokens: Tensor, x: Tensor) -> Tensor:
        """Return the states (B, N) after tokens (B, T) from states x, rescaled once per word of m tokens."""
        assert tokens.shape[1] % self.m == 0, "tokens must be whole words"
        code = (tokens.reshape(len(tokens), -1, self.m) * self.powers).sum(-1)  # (B, W)
        return ops.token_scan(self.matrices, None, code, x, rescale=self.rescale)[1]
