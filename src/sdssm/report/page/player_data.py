"""What the playground needs of a run: `PlayerData` of web/src/data.ts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sdssm.automata import Machine
from sdssm.errors import ModelError
from sdssm.report.page.page_types import Certified, PlayerData, PlayerVariant
from sdssm.report.page.player_models import make_machine_model, make_player_model
from sdssm.runs.schema import RunConfig


def make_player_data(
    config: RunConfig,
    weights: Mapping[str, np.ndarray],
    *,
    extracted: Machine | None = None,
    certified: Certified | None = None,
) -> PlayerData:
    """Return the model of a run for the browser; raise a `ModelError` that says why if it cannot run there.

    The variants are the trained model and, if its automaton was extracted, the exact model of that automaton.
    `why_not_playable` of `sdssm.report.page.player_models` answers without the weights.

    Args:
        config: the config of the run.
        weights: the tensors of its model.safetensors by name.
        extracted: the machine of its extraction.json, if there is one.
        certified: what its certificate.json proves, if there is one.
    """
    trained = make_player_model(config.model, weights, config.n_symbols, config.n_classes)
    variants: list[PlayerVariant] = [{"name": "trained", "model": trained}]
    if extracted is not None:
        if extracted.n_symbols != config.n_symbols or extracted.n_outputs > config.n_classes:
            raise ModelError(
                f"the extracted automaton has {extracted.n_symbols} symbols and {extracted.n_outputs} classes, but the "
                f"model {config.n_symbols} and {config.n_classes}"
            )
        variants.append({"name": "snapped", "model": make_machine_model(extracted, config.n_classes)})
    return {"train_length": config.train_length, "certified": certified, "variants": variants}
