#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# All measurements of this folder, one after another: must-show.sh BUILD
# $PYTHON: one with the peers (setup.sh), python3 otherwise.
# $CALIBRATION: folder of make_caches.py; $PROFILES: where trained profiles are kept.
# $MODEL, $MODEL_CALIBRATION, $MODEL_TEST, $MODEL_PROFILES: as models.py takes them.
# Without $CALIBRATION or $MODEL, rows of profiles or of models are left out.
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
if [ -n "${CALIBRATION-}" ]; then
	echo "== profiles"
	"$python" "$here/profiles.py" "$CALIBRATION" ${PROFILES:+"$PROFILES"}
else
	echo "== profiles: not measured, \$CALIBRATION is not set"
fi
if [ -n "${MODEL-}" ]; then
	echo "== models"
	"$python" "$here/models.py" "$MODEL" "${MODEL_CALIBRATION:?}" \
		"${MODEL_TEST:?}" ${MODEL_PROFILES:+"$MODEL_PROFILES"}
else
	echo "== models: not measured, \$MODEL is not set"
fi
echo "== flips"
"$here/flips.sh" "$build"
