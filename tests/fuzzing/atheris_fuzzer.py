"""Fuzzing by libFuzzer through atheris; run as a program, since libFuzzer ends the process.

`pip install atheris` into an environment of its own: it is no dependency of the project.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from pathlib import Path

#: The packages whose branches guide the fuzzer.
GUIDES = [
    "sdssm.automata",
    "sdssm.experiments.specs",
    "sdssm.experiments.sweeps",
    "sdssm.settings",
    "tomllib",
    "json.decoder",
]


#: The longest that a process fuzzes, in seconds: atheris itself leaks some kilobytes with each input,
#: and with regular expressions much more; the same inputs without it leave the memory flat.
ROUND_SECONDS = 120


def fuzz_in_child(target: str, seconds: int, folder: Path, seed: int) -> int:
    """Fuzz a target in processes of their own; return an exit code, not 0 if an input hung or killed one of them.

    The inputs that reached new branches are kept in `folder`/corpus for the next process.
    """
    codes = []
    for start in range(0, seconds, ROUND_SECONDS):
        share = min(ROUND_SECONDS, seconds - start)
        command = [sys.executable, "-m", "tests.fuzzing.atheris_fuzzer", target, str(share), str(folder), str(seed)]
        codes.append(subprocess.run(command, check=False).returncode)
        seed += seed > 0  # 0: another one each time
    return max(map(abs, codes))


def _fuzz(name: str, seconds: int, folder: Path, seed: int) -> None:
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=GUIDES):
        from tests.fuzzing.findings import Findings
        from tests.fuzzing.targets import MOST_BYTES, TARGETS, without_imports

    target = TARGETS[name]
    findings = Findings(target, folder)
    with tempfile.TemporaryDirectory() as scratch, without_imports():
        corpus = folder / "corpus" / name
        corpus.mkdir(parents=True, exist_ok=True)
        for k, text in enumerate(target.seeds):
            (corpus / f"seed-{k}").write_text(text, encoding="utf-8")
        for path in Path(__file__).parent.glob(f"corpus/{name}-*"):
            (corpus / path.name).write_bytes(path.read_bytes())
        words = Path(scratch, "words")
        escaped = ("".join(f"\\x{byte:02x}" for byte in word.encode()) for word in target.words)
        words.write_text("".join(f'"{word}"\n' for word in escaped))
        options = [f"-max_total_time={seconds}", f"-max_len={MOST_BYTES}", "-timeout=60", "-rss_limit_mb=4096"]
        options += [f"-seed={seed}", f"-dict={words}", f"-artifact_prefix={folder}/{name}-", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *options, "-verbosity=1", str(corpus)], findings.try_input)
        atheris.Fuzz()  # ends the process


if __name__ == "__main__":
    _fuzz(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
