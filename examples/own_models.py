"""Train models that know nothing of this library, each in at most ten lines (a new RNN: 15), on longer strings too.

A model is a class or function (n_symbols, n_classes) -> module, whose module maps tokens (B, L) to logits (B, L, C).
Four of them: torch's GRU, torch's transformer encoder, a linear RNN written here, and a minGRU from a package on PyPI
(`pip install 'sdssm[examples]'`). They are trained on strings of 1 to 20 symbols of two tasks: `parity`, is the number
of ones odd, and `even_pairs`, are the first and the last symbol equal. Prints the accuracy at training lengths and
beyond; chance is 50 %. All four learn `even_pairs`; the minGRU forgets the first symbol before length 200. On `parity`
only the GRU and the linear RNN are above chance: a transformer has no state, and that of a minGRU is a moving average,
which cannot be flipped again and again.

    python examples/own_models.py                           # 600 steps for each model and task, 30 seconds on one core
    python examples/own_models.py --models torch-gru linear-rnn --tasks a5 --steps 5000
    sdssm train parity --model examples/own_models.py:Gru --set width=64        # the same model, from a shell
"""

from __future__ import annotations

import argparse
from tempfile import TemporaryDirectory
from time import perf_counter

import torch
from torch import Tensor, nn

import sdssm

TRAIN_LENGTH = 20
TEST_LENGTHS = (10, 20, 40, 100, 200)


# nn.GRU, eight lines. The lines with `register` give a name and a learning rate; they are optional.
@sdssm.register("torch-gru", defaults={"lr": 1e-2})
class Gru(nn.Module):
    def __init__(self, n_symbols: int, n_classes: int, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_symbols, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.readout = nn.Linear(width, n_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.readout(self.gru(self.embedding(tokens))[0])


# nn.TransformerEncoder, ten lines. The mask makes it causal, which is checked.
@sdssm.register("torch-transformer", defaults={"lr": 5e-3})
class Transformer(nn.Module):
    def __init__(self, n_symbols: int, n_classes: int, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_symbols, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.readout = nn.Linear(width, n_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        return self.readout(self.encoder(self.embedding(tokens), mask, is_causal=True))


# A linear RNN, twelve lines in all: one matrix for each symbol, x_t = A(u_t) x_{t-1}, divided by its norm.
@sdssm.register("linear-rnn", defaults={"lr": 1e-2})
class LinearRnn(nn.Module):
    def __init__(self, n_symbols: int, n_classes: int, state: int = 16) -> None:
        super().__init__()
        self.matrices = nn.Parameter(torch.eye(state) + 0.1 * torch.randn(n_symbols, state, state))
        self.start = nn.Parameter(torch.randn(state))
        self.readout = nn.Linear(state, n_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        states = [self.start.expand(len(tokens), -1)]
        for matrix in self.matrices[tokens].unbind(1):  # (B, N, N), for each position
            x = (matrix @ states[-1][..., None])[..., 0]
            states.append(x / x.norm(dim=-1, keepdim=True))
        return self.readout(torch.stack(states[1:], 1))


# A language model of a package, five lines. It predicts a class in place of the next token.
@sdssm.register("min-gru", defaults={"lr": 5e-3})
def min_gru(n_symbols: int, n_classes: int, width: int = 16, layers: int = 2) -> nn.Module:
    from minGRU_pytorch.minLM import minLM

    model = minLM(num_tokens=n_symbols, dim=width, depth=layers)
    model.to_logits = nn.Linear(width, n_classes)
    return model


MODELS = ("torch-gru", "torch-transformer", "linear-rnn", "min-gru")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train models that know nothing of this library.")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, help="(default: all)")
    parser.add_argument("--tasks", nargs="+", default=["parity", "even_pairs"], help="(default: %(default)s)")
    parser.add_argument("--steps", type=int, default=600, help="for each model and task (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and strings (default: %(default)s)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the tensors are small: more threads would only wait for each other
    rows: dict[str, list[tuple[str, tuple[float, ...]]]] = {}
    for model in arguments.models:
        settings = {"steps": arguments.steps, "train_length": TRAIN_LENGTH, "batch": 32}
        with TemporaryDirectory() as folder:
            started = perf_counter()
            seeds = [arguments.seed]
            runs = sdssm.train(arguments.tasks, model=model, seeds=seeds, settings=settings, out=folder, device="cpu")
            seconds = perf_counter() - started
            evaluation = sdssm.evaluate(runs, lengths=TEST_LENGTHS, device="cpu")
            size = sum(parameter.numel() for parameter in sdssm.load(runs[0].path).parameters())
        print(f"{model}: {size:,} parameters, {arguments.steps} steps on each task in {seconds:.1f} s")
        for run in evaluation.runs:
            rows.setdefault(run.task, []).append((model, run.accuracy))
    for name, lines in rows.items():
        print(f"\nAccuracy in % on {name}, at lengths up to {TRAIN_LENGTH} as in training, and beyond\n")
        print(f"{'length':<18}" + "".join(f"{length:>8}" for length in TEST_LENGTHS))
        chance = (sdssm.task(name).chance_accuracy,) * len(TEST_LENGTHS)
        for model, accuracies in [*lines, ("chance", chance)]:
            print(f"{model:<18}" + "".join(f"{accuracy:8.1f}" for accuracy in accuracies))


if __name__ == "__main__":
    main()
