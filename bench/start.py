# SPDX-License-Identifier: BSD-3-Clause
"""How long the command takes to start, beside zstd, in turns, and how many libraries it loads.

usage: start.py [KVARC] (build/kvarc). Exit 1: `--version` takes more than 2 ms, `info` of the
sample archive more than 3, or one of them loads more than 8 libraries. Times are medians of 200
whole processes from fork to wait, least of five sets; the time of an empty program is said.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SETS, TIMES = 5, 40


def milliseconds(command):
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - start) * 1e3


def libraries(command):
    """What the loader begins, the loader itself among them."""
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "debug")
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True,
                       env={**os.environ, "LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": output})
        lines = "".join(open(os.path.join(folder, name)).read() for name in os.listdir(folder))
    return {line.split("calling init: ")[1] for line in lines.splitlines() if "calling init: " in line}


def main():
    kvarc = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(TOP, "build/kvarc"))
    with tempfile.TemporaryDirectory() as folder:
        archive = os.path.join(folder, "a.kva")
        slot = os.path.join(TOP, "tests/data/sample/smollm2-135m-f16-160.slot")
        subprocess.run([kvarc, "pack", "-q", "-o", archive, slot], check=True)
        commands = {"true": ["true"], "zstd --version": ["zstd", "--version"],
                    "kvarc --version": [kvarc, "--version"],
                    "kvarc info of the sample": [kvarc, "info", archive]}
        took = {name: [] for name in commands}
        for _ in range(SETS):
            times = {name: [] for name in commands}
            for _ in range(TIMES):
                for name, command in commands.items():
                    times[name].append(milliseconds(command))
            for name in commands:
                took[name].append(statistics.median(times[name]))
        good = True
        most = {"kvarc --version": 2, "kvarc info of the sample": 3}
        for name, command in commands.items():
            loaded = len(libraries(command))
            ms = min(took[name])
            print(f"{name:26} {ms:5.2f} ms (medians {', '.join(f'{x:.2f}' for x in took[name])}), "
                  f"{loaded} libraries")
            good = good and (name not in most or (ms <= most[name] and loaded <= 8))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
