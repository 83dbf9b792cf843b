"""Coverage-guided fuzzing of the readers: `python -m tests.fuzzing regex --seconds 60`.

targets.py    what is fuzzed, and what must hold for every input
findings.py   inputs that broke a rule, stored once for each place in the code
atheris_fuzzer.py, coverage_fuzzer.py   libFuzzer if atheris is installed, and a small loop if it is not
corpus/       inputs that broke a rule, or came near to a limit; `test_corpus.py` reads them all
"""
