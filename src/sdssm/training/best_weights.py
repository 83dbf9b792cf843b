"""The weights with the best validation accuracy so far, which become the result of a run."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from sdssm.runs.checkpoint import BEST_PREFIX
from sdssm.training.replicas import Replicas

#: Names in a checkpoint: the prefix of the best weights so far, and their validation accuracy.
BEST, SCORE = BEST_PREFIX, "best_score"


class BestWeights:
    """The best weights of each replica so far: parameters, and the buffers that training changed with them.

    `rows` (R, P) are the parameters, `buffers` are by name for each replica; both are those of the start at first.
    """

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self.rows = replicas.flat.clone()
        self.buffers = [replicas.trained_buffers(replica) for replica in range(len(replicas))]
        self._scores = [-1.0] * len(replicas)

    def update(self, replica: int, score: float) -> None:
        """Keep the current weights of a replica if this accuracy is at least that of the best ones.

        Of equal scores the later one is kept: at 100 % further training still helps on longer strings.
        """
        if score >= self._scores[replica]:
            self._scores[replica] = score
            self.rows[replica] = self._replicas.flat[replica]
            self.buffers[replica] = self._replicas.trained_buffers(replica)

    def tensors(self, replica: int) -> dict[str, Tensor]:
        """Return the best weights of a replica for a checkpoint."""
        named = self._replicas.named(self.rows[replica]) | self.buffers[replica]
        score = torch.tensor(self._scores[replica], dtype=torch.float64)
        return {BEST + name: value for name, value in named.items()} | {SCORE: score}

    def restore(self, replica: int, tensors: Mapping[str, Tensor]) -> None:
        """Load what `tensors` returned."""
        self.rows[replica] = self._replicas.joined(tensors, BEST).to(self.rows.device)
        self.buffers[replica] = {name: tensors[BEST + name] for name in self.buffers[replica]}
        self._scores[replica] = float(tensors[SCORE])
