# SPDX-License-Identifier: BSD-3-Clause
"""`python -m kvarc` is the command kvarc, which is in the package."""
import os
import sys


def main() -> None:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bin", "kvarc")
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execv(path, ["kvarc", *sys.argv[1:]])
    except OSError as e:
        sys.exit(f"{path}: {e.strerror}: install the package again")


if __name__ == "__main__":
    main()
