# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# A profile that predicts nothing of a file: level 1, and why.
# shellcheck disable=SC2154 # top: of run.sh
profile=$top/tests/data/sample/smollm2-135m-level2.kvp
cp "$top/tests/data/import/ggsq4-q8_0.bin" q8_0.bin
for options in -1 -2 "-2 --opaque --embed-profile"; do
	echo "# $options"
	# shellcheck disable=SC2086 # words
	kv pack -v $options --profile "$profile" -f -o a.kva q8_0.bin 2>&1 | mask
	# shellcheck disable=SC2086 # words
	kv pack $options --profile "$profile" -f -o a.kva q8_0.bin 2>&1
	# shellcheck disable=SC2086 # words
	kv pack -q --json $options --profile "$profile" -f -o a.kva q8_0.bin |
		grep -o '"level":[0-9]*'
	kv list a.kva | grep predictor
done
echo "# another model"
cp "$top/tests/data/import/ggsq4-f16.bin" f16.bin
kv pack -2 --profile "$profile" -f -o a.kva f16.bin
