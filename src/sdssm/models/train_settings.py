"""The settings of the training, and which names the settings of a model must not have.

They are here, below the packages that train, so that a model can be refused when it is registered. This module imports
no torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sdssm.errors import ModelError, SettingsError
from sdssm.limits import LONGEST_STRING, LONGEST_TRAINED, MOST_STEPS
from sdssm.settings import check_settings, setting, setting_types
from sdssm.tasks.sampling import SAMPLINGS

#: What a training is given besides settings. As a setting of a model, such a name would be mistaken for it.
RUN_NAMES = ("task", "model", "preset", "seed", "seeds")


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """Settings of the training. The defaults are the scale-free recipe."""

    steps: int = setting(40_000, "number of training steps", least=1, most=MOST_STEPS)
    batch: int = setting(128, "strings per step", least=1, most=1 << 20)
    train_length: int | None = setting(
        None,
        "L, the longest training strings; none: the default of the task, 40 (c2xc30 and d30: 90)",
        least=1,
        most=LONGEST_TRAINED,
    )
    shortest: int = setting(1, "the shortest training strings", least=1, most=LONGEST_TRAINED)
    curriculum: str = setting(
        "uniform",
        "one length per step: uniform on shortest..L; fixed: L; growing: uniform on a range that reaches L after half "
        "of the steps",
        choices=("uniform", "fixed", "growing"),
    )
    sampling: str = setting(
        "auto",
        "how the strings of a length are drawn: uniform; balanced by label; covering: half of them with a uniform last "
        "transition of the minimal machine, a quarter balanced, a quarter uniform; auto: uniform if those cover the "
        "machine, else covering",
        choices=("auto", *SAMPLINGS),
    )
    allow_unidentified: bool = setting(
        False, "train even if strings up to L do not take every transition of the machine, so that nothing shows them"
    )
    lr: float = setting(1e-3, "learning rate", least=0)
    schedule: str = setting(
        "cosine",
        "learning rate after the warm-up: constant, a half cosine down to 0, or exponentially to a thousandth",
        choices=("constant", "cosine", "exponential"),
    )
    warmup: float = setting(0.025, "share of the steps in which the learning rate rises from 0", least=0, most=1)
    betas: tuple[float, float] = setting(
        (0.9, 0.999), "decay rates of the two moving averages of Adam", least=0, below=1
    )
    eps: float = setting(1e-8, "epsilon of Adam, added to its denominator", least=0)
    weight_decay: float = setting(0.0, "coupled: added to the gradient, as in torch.optim.Adam", least=0)
    clip: float | None = setting(1.0, "the greatest norm of a gradient; none: no clipping", above=0)
    targets: str = setting(
        "label",
        "what is learned: the label of a string; or state: the state of the minimal machine, see preset states",
        choices=("label", "state"),
    )
    next_state: float = setting(
        10.0,
        "weight of the distances of next states from their centres, if targets is state",
        least=0,
    )
    attraction: float = setting(
        8.0, "weight of the centre loss, which rises linearly from 0 to this; cosine readout only", least=0
    )
    attraction_gate: float = setting(
        32.0,
        "power of the moving average of the training accuracy that multiplies the centre loss; 0: no gate",
        least=0,
    )
    projection_decay: float = setting(
        3.0, "decay of P towards the identity, times the learning rate; cosine readout only", least=0
    )
    prefixes: int = setting(
        1,
        "how many prefixes of each string have their label in the loss, evenly spaced; 1: only the whole string; "
        "train_length: every prefix",
        least=1,
        most=LONGEST_TRAINED,
    )
    gain_penalty: float = setting(
        0.0,
        "weight of the variance of the log gain over the states after the strings of a step, for each symbol; "
        "single-layer SD-SSM",
        least=0,
    )
    exact_gradient: bool = setting(
        False,
        "compute the gradient of the label's logit as minus the sum of the others: in float32 it is 0 below a loss of "
        "3e-8 otherwise, and training becomes unstable",
    )
    validate_length: int | None = setting(
        None,
        "keep the weights with the best accuracy on lengths up to this, the latest of equals; not a test length; "
        "balanced accuracy if sampling is not uniform",
        least=1,
        most=LONGEST_STRING,
    )
    validate_every: int = setting(5_000, "steps between validations", least=1, most=MOST_STEPS)
    evaluate_every: int | None = setting(
        None,
        "steps between evaluations at every length up to the test length; they are recorded in the log and change "
        "nothing; none: no evaluation during training",
        least=1,
        most=MOST_STEPS,
    )
    checkpoint_every: int | None = setting(
        None, "steps between checkpoints; none: about every minute", least=1, most=MOST_STEPS
    )
    log_every: int | None = setting(None, "steps between events; none: 200 times in a run", least=1, most=MOST_STEPS)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.train_length is not None and self.shortest > self.train_length:
            raise SettingsError(
                f"shortest is {self.shortest} and train_length {self.train_length}; the shortest training strings must "
                "be at most as long as the longest"
            )

    def without_replica_values(self) -> TrainSettings:
        """Return these settings without the values that may differ between replicas trained in one batch.

        Of a term of the loss only whether there is one must agree.
        """
        return replace(
            self,
            lr=0.0,
            weight_decay=0.0,
            schedule="constant",
            warmup=0.0,
            train_length=None,
            shortest=1,
            curriculum="uniform",
            sampling="uniform",
            attraction=float(self.attraction > 0),
            gain_penalty=float(self.gain_penalty > 0),
        )


def check_setting_names(owner: str, names: Iterable[str], model_settings: Iterable[str] = ()) -> None:
    """Raise an error if a model has a setting with the name of one of the training: `--steps` must mean one thing.

    `owner` is the model, for the error message; `model_settings` are the names that its classifier uses.

    >>> check_setting_names("Gru", ["width", "steps"])
    Traceback (most recent call last):
    sdssm.errors.ModelError: the parameter 'steps' of Gru has the name of a setting of the training; rename it, ...
    """
    training, classifier = {*setting_types(TrainSettings), *RUN_NAMES}, set(model_settings)
    for name in names:
        if name in training or name in classifier:
            what = "of the training" if name in training else "of the classifier around it"
            raise ModelError(
                f"the parameter {name!r} of {owner} has the name of a setting {what}; rename it, for example to "
                f"'model_{name}'"
            )
