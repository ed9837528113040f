# SPDX-License-Identifier: BSD-3-Clause
"""`python -m kvarc` is the command kvarc, which is installed with the package."""
import os
import shutil
import sys
import sysconfig


def find_command():
    """The path of the command: of a tree for development, where pip puts scripts, on PATH."""
    package = os.path.dirname(os.path.abspath(__file__))
    user = "posix_user" if sys.version_info < (3, 10) else sysconfig.get_preferred_scheme("user")
    folders = (os.path.join(package, "_bin"),
               sysconfig.get_path("scripts"),
               sysconfig.get_path("scripts", user),
               os.path.join(os.path.dirname(package), "bin"))  # pip install --target
    path = os.pathsep.join(folders)
    return shutil.which("kvarc", path=path) or shutil.which("kvarc")


def main() -> None:
    path = find_command()
    if not path:
        sys.exit("kvarc: the command is not installed: install the package again, "
                 "or put kvarc on PATH")
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execv(path, ["kvarc", *sys.argv[1:]])
    except OSError as e:
        sys.exit(f"{path}: {e.strerror}: install the package again")


if __name__ == "__main__":
    main()
