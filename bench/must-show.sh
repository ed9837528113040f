#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# All measurements of this folder, one after another: must-show.sh BUILD
# $PYTHON: one with the peers (setup.sh), python3 otherwise.
set -eu

build=$(cd "${1:?build folder}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
KVARC=$build/kvarc
export KVARC
python=${PYTHON:-python3}
for script in ratios speed memory; do
	echo "== $script"
	"$python" "$here/$script.py"
done
echo "== flips"
"$here/flips.sh" "$build"
