# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The file id: the same for the same input and options, another one for any other archive.
needs JANSSON
# shellcheck disable=SC2154 # top: of run.sh
ln -s "$top/tests/data/models" models
ln -s "$top/tests/data/sample/smollm2-135m-level2.kvp" one.kvp
ln -s "$top/tests/data/sample/smollm2-135m-level2.kvp" two.kvp
small_cache > c.safetensors

# id ARGUMENT...: of the archive that pack makes
id() {
	kv pack -q -f -o a.kva "$@"
	kv info --json a.kva | sed 's/.*"file_id":"\([0-9a-f]*\)".*/\1/'
}
"$KVARC" train -q -o five.kvp --level 5 --model models/llama.gguf c.safetensors \
	> fitted.txt
"$KVARC" train -q -o six.kvp --level 6 --model models/llama.gguf c.safetensors \
	> fitted.txt
{
	id "$SLOT"
	id --profile one.kvp "$SLOT"
	id --profile two.kvp "$SLOT"
	id -1 "$TENSORS"
	for ids in stored model; do
		id -5 --profile five.kvp --model models/llama.gguf \
			--token-ids $ids c.safetensors
	done
	id -6 --profile six.kvp --model models/llama.gguf c.safetensors
} > ids
sort ids | uniq | wc -l | tr -d ' '
id "$SLOT" > again
head -n 1 ids | cmp - again
