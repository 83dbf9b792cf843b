"""Fuzz readers for some time each: `python -m tests.fuzzing regex dot --seconds 60`."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.fuzzing.atheris_fuzzer import fuzz_in_child
from tests.fuzzing.coverage_fuzzer import fuzz_here
from tests.fuzzing.findings import Findings
from tests.fuzzing.targets import TARGETS, without_imports


def main() -> int:
    """Fuzz the targets; return 1 if an input broke a rule."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], help=f"of {', '.join(TARGETS)} (default: all)")
    parser.add_argument("--seconds", type=int, default=60, help="time for each target (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="of the mutations; 0: another one each time")
    parser.add_argument(
        "--out", type=Path, default=Path("fuzzing-findings"), help="folder for inputs that break a rule"
    )
    parser.add_argument(
        "--without-atheris", action="store_true", help="use the slower loop even if atheris is installed"
    )
    options = parser.parse_args()
    uses_atheris = find_spec("atheris") is not None and not options.without_atheris
    options.out.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in options.targets or TARGETS:
        before = set(options.out.glob(f"{name}-*"))
        if uses_atheris:
            code = fuzz_in_child(name, options.seconds, options.out, options.seed)
            tried = "atheris, see above"
        else:
            findings = Findings(TARGETS[name], options.out)
            with without_imports():
                fuzz_here(findings, options.seconds, options.seed)
            code, tried = 0, f"{findings.tried:,} inputs"
        new = sorted(path.name for path in set(options.out.glob(f"{name}-*")) - before)
        sys.stdout.write(f"{name}: {tried}; {len(new)} findings in {options.out}: {', '.join(new) or 'none'}\n")
        failed = failed or bool(new) or code != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
