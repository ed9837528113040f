#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Makes FOLDER/venv with the compressors that the scripts here compare with:
# setup.sh FOLDER, then run the scripts with FOLDER/venv/bin/python. Network.
set -eu

folder=${1:?folder}
python3 -m venv "$folder/venv" ||
	{ echo "no virtual environment (Debian: apt-get install python3-venv)" >&2; exit 1; }
"$folder/venv/bin/python" -m pip install -q --disable-pip-version-check \
	numpy zstandard zipnn pcodec
"$folder/venv/bin/python" - <<'END'
import importlib.metadata as m
print(', '.join('%s %s' % (p, m.version(p))
                for p in ('numpy', 'zstandard', 'zipnn', 'pcodec')))
END
