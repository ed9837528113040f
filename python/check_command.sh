#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The command of a virtual environment is the program itself, which starts at once, and
# `python -m kvarc` is the same: check_command.sh VENV.
set -eu

venv=${1:?virtual environment}
[ "$(head -c 4 "$venv/bin/kvarc" | tail -c 3)" = ELF ] || {
	echo "$venv/bin/kvarc is a script" >&2
	exit 1
}
version=$("$venv/bin/kvarc" --version)
[ "$("$venv/bin/python" -m kvarc --version)" = "$version" ]
"$venv/bin/python" - "$venv/bin/kvarc" <<'PYTHON'
import subprocess
import sys
import time

best = 1e9
for _ in range(10):
    start = time.perf_counter()
    subprocess.run([sys.argv[1], "--version"], check=True, stdout=subprocess.DEVNULL)
    best = min(best, time.perf_counter() - start)
print(f"kvarc --version: {best * 1e3:.1f} ms, the least of 10")
# an import of numpy alone takes longer
assert best < 0.05, "the command is slow to start"
PYTHON
