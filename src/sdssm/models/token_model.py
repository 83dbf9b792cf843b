"""The base class of all models: tokens (..., L) -> logits (..., L, C) for every prefix."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from safetensors.torch import save
from torch import Tensor, nn

from sdssm.checksums import add_tensor_checksum
from sdssm.errors import ModelError
from sdssm.models.evidence import Evidence
from sdssm.models.model_folder import write_model_folder
from sdssm.models.module_settings import ModuleSettings
from sdssm.models.names import tensors_for_file
from sdssm.models.settings import ModelSettings
from sdssm.settings import settings_to_dict
from sdssm.tasks import Task

#: What a model carries from one piece of a string to the next: tensors (..., N), in nested tuples; None at the start.
State = Any
#: How a module reads: logits for every prefix (B, L, C), or for the whole string (B, C).
Reads = Literal["prefixes", "strings"]


class TokenModel(nn.Module, ABC):
    """A model that classifies strings of symbols: what training, evaluation and the report card need of one.

    There are two kinds. `Classifier` is built from the settings of the catalogue; `WrappedModule` holds a module that
    someone else wrote.

    `settings` name the model, `n_symbols` and `n_classes` are its sizes. `task` is the task that it was built for, or
    None; it is saved with the model and names the symbols, and predictions do not depend on it. `evidence` is what the
    folder that it was loaded from says about it, or None.
    """

    settings: ModelSettings | ModuleSettings
    n_symbols: int
    n_classes: int
    task: Task | None = None
    evidence: Evidence | None = None

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Allow code that holds any model to read the parameters of a classifier."""

    # -- what it can do ------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of the model, as `train(model=...)` takes it."""
        return self.settings.name

    @property
    def device(self) -> torch.device:
        """The device of its parameters; the CPU if it has none."""
        for tensors in (self.parameters(), self.buffers()):
            for tensor in tensors:
                return tensor.device
        return torch.device("cpu")

    @property
    @abstractmethod
    def is_causal(self) -> bool:
        """Whether the prediction for a prefix does not depend on later symbols."""

    @property
    @abstractmethod
    def is_recurrent(self) -> bool:
        """Whether a string can be read in pieces, with a state carried from one piece to the next."""

    @property
    @abstractmethod
    def can_read_prefixes_at_once(self) -> bool:
        """Whether one pass over a string gives the same predictions as reading each prefix separately."""

    @property
    @abstractmethod
    def longest(self) -> int | None:
        """The largest string length that the model can read; None if there is no limit."""

    @property
    @abstractmethod
    def numbers_per_symbol(self) -> int:
        """Estimate of the numbers in memory for each symbol of a string during evaluation."""

    @property
    def numbers_per_pair(self) -> int:
        """Estimate of the numbers in memory for each pair of positions of a string during training."""
        return 0

    # -- reading strings -----------------------------------------------------------------------------------------------

    @abstractmethod
    def advance(self, tokens: Tensor, state: State = None, *, starts: Tensor | None = None) -> tuple[Tensor, State]:
        """Read the next piece of a string: tokens (..., L), state -> logits (..., L, C), final state.

        A model that is not recurrent reads whole strings only: it accepts no state and returns None.
        """

    @abstractmethod
    def last_logits(self, tokens: Tensor, state: State = None, *, starts: Tensor | None = None) -> Tensor:
        """Return the logits after the last symbol only: tokens (B, L) -> (B, C)."""

    @abstractmethod
    def loss(
        self,
        tokens: Tensor,
        labels: Tensor,
        *,
        lengths: Tensor | None = None,
        ends: Tensor | None = None,
        starts: Tensor | None = None,
        noise: Mapping[str, Tensor] | None = None,
        attraction: Tensor | None = None,
        classes: Tensor | None = None,
        gain_penalty: Tensor | None = None,
        exact_gradient: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Return the mean loss of the predictions for whole strings, and the number of correct predictions.

        With `ends` (B, P), the lengths of P prefixes of each string, `labels` (B, P) are those of the prefixes.
        """

    @property
    @abstractmethod
    def predicts_prefixes(self) -> bool:
        """Whether one training step can predict all prefixes of a string: whether `loss` takes `ends`."""

    def forward(self, tokens: Tensor, *, starts: Tensor | None = None) -> Tensor:
        """Return the logits after every symbol: tokens (..., L) -> (..., L, C)."""
        return self.advance(tokens, starts=starts)[0]

    def advance_state(self, tokens: Tensor, state: State = None, *, starts: Tensor | None = None) -> State:
        """Return the final state only: tokens (B, L), state -> state."""
        return self.advance(tokens, state, starts=starts)[1]

    def noise_shapes(self, batch: int, length: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the noise that `loss` needs for tokens (B, L), by name."""
        return {}

    def symbol_matrices(self) -> Tensor | None:
        """Return the transition matrix of each symbol, (V, N, N), of a single-layer SD-SSM; else None."""
        return None

    # -- saving --------------------------------------------------------------------------------------------------------

    def file_name(self, name: str) -> str:
        """Return the name in a file of the parameter or buffer that the module calls `name`."""
        return name

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write config.json, model.safetensors and, if `task` is set, task.json; `sdssm.load` reads them.

        A folder that holds a model is refused without `overwrite`. Runs, and files of other programs, are never
        overwritten.
        """
        write_model_folder(Path(folder), self.to_config(), self.to_safetensors(), self.task, overwrite=overwrite)

    def to_config(self) -> dict[str, Any]:
        """Return the contents of config.json: the settings and the two sizes."""
        return {"model": settings_to_dict(self.settings), "n_symbols": self.n_symbols, "n_classes": self.n_classes}

    def to_safetensors(self) -> bytes:
        """Return the weights as the bytes of a safetensors file with a checksum."""
        # A copy of each: the format refuses tensors that share memory, as tied weights do.
        copies = {name: value.detach().cpu().contiguous().clone() for name, value in tensors_for_file(self).items()}
        return add_tensor_checksum(save(copies))

    # -- the Hugging Face Hub ------------------------------------------------------------------------------------------

    @classmethod
    def from_pretrained(
        cls,
        folder_or_repo: str | Path,
        *,
        revision: str | None = None,
        trust: bool = False,
        device: str | torch.device = "cpu",
    ) -> Self:
        """Load a model from a folder, or from a repository of the Hugging Face Hub (needs sdssm[hub]).

        Args:
            folder_or_repo: a folder that holds a model, or "owner/name".
            revision: a branch, a tag or a commit of the repository; default: its main branch.
            trust: import the code of a model that is not part of this package, if it is installed here. Code is never
                downloaded.
            device: where the model is put.
        """
        from sdssm.models.hub import load_pretrained

        model = load_pretrained(folder_or_repo, revision=revision, trust=trust, device=device)
        if not isinstance(model, cls):
            raise ModelError(
                f"{folder_or_repo} holds a {type(model).__name__}, not a {cls.__name__}; use TokenModel.from_pretrained"
            )
        return model

    def save_pretrained(
        self,
        folder: str | Path,
        *,
        overwrite: bool = False,
        license: str | None = None,  # noqa: A002  # as the Hub calls it
    ) -> None:
        """Write what `save` writes, and a model card, README.md, for the Hugging Face Hub.

        The evaluation and the certificate of the folder that the model was loaded from are kept, unless its weights
        have changed. `license` is written into the card; without it the card says that there is none yet.
        """
        from sdssm.models.hub import save_pretrained

        save_pretrained(self, folder, overwrite=overwrite, license=license)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        commit_message: str | None = None,
        revision: str | None = None,
        license: str | None = None,  # noqa: A002  # as the Hub calls it
    ) -> str:
        """Upload the files of `save_pretrained` to the Hugging Face Hub (needs sdssm[hub]); return their address.

        Args:
            repo_id: "owner/name"; the repository is created if there is none.
            private: whether a new repository is private; default: as your account is set.
            commit_message: the message of the commit.
            revision: the branch; default: the main branch.
            license: the license in the model card.
        """
        from sdssm.models.hub import push_pretrained

        return push_pretrained(
            self, repo_id, private=private, commit_message=commit_message, revision=revision, license=license
        )
