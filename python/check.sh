#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Tests of the Python package: check.sh FOLDER [PYTEST-ARGUMENT...], with the build folder of the
# library in $KVARC_BUILD.
#
# In FOLDER, once: a virtual environment (network). The package is built in a copy of its sources;
# the last line is "python: N passed, N failed". KVARC_TEST_PACKAGES: more packages, such as
# "torch transformers mlx mlx-cpu mlx-lm", whose tests are skipped without them.
set -eu

folder=${1:?folder}
shift
: "${KVARC_BUILD:?the build folder of the library}"
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
PYTHONDONTWRITEBYTECODE=1
export KVARC_BUILD PYTHONDONTWRITEBYTECODE
unset PYTHONPATH

if [ ! -e "$folder/ready" ]; then
	rm -rf "$folder/venv"
	"${PYTHON3:-python3}" -m venv "$folder/venv" || {
		echo "no virtual environment (Debian: apt-get install python3-venv)" >&2
		exit 77
	}
	timeout 600 "$folder/venv/bin/pip" install -q --disable-pip-version-check \
		'setuptools >= 77' cffi numpy pytest ml_dtypes fsspec tqdm mypy ${KVARC_TEST_PACKAGES-}
	touch "$folder/ready"
fi
python=$folder/venv/bin/python
rm -rf "$folder/tree"
mkdir "$folder/tree"
cp -R "$here" "$here/../include" "$folder/tree"
chmod -R u+w "$folder/tree"
rm -rf "$folder/tree/python/build"
(cd "$folder/tree/python" && "$python" setup.py -q build_ext -i)
status=0
PYTHONPATH=$folder/tree/python/src "$python" -m pytest -q -p no:cacheprovider \
	--junit-xml "$folder/results.xml" "$@" "$here/tests" || status=$?
"$python" - "$folder/results.xml" <<'END'
import sys
import xml.etree.ElementTree as tree
suite = next(tree.parse(sys.argv[1]).iter("testsuite"))
counts = suite.attrib
for case in suite.iter("testcase"):
    for skipped in case.iter("skipped"):
        print(f"skip {case.get('name') or case.get('classname')}: {skipped.get('message')}")
bad = int(counts["failures"]) + int(counts["errors"])
good = int(counts["tests"]) - bad - int(counts["skipped"])
print(f"python: {good} passed, {bad} failed")
END
exit "$status"
