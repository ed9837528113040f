# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# A model that becomes shorter while it is in use: one line, and no file is left.
needs JANSSON
mkfifo fifo
small_cache 600 > c.safetensors

# shrink MODEL FILE: FILE is truncated when the model has decoded the first segment, and the rest of
# the archive is waited for
shrink() {
	"$KVARC" unpack -o back --model "$1" - < fifo &
	pid=$!
	exec 3> fifo
	head -c $(($(wc -c < c.kva) / 2)) c.kva >&3
	tries=0
	while [ -z "$(find . -name '.back.kvarc-*' -size +8)" ] && [ $tries -lt 200 ]; do
		sleep 0.05
		tries=$((tries + 1))
	done
	find . -name '.back.kvarc-*' | sed 's/-[0-9a-f]*$/-HEX/'
	: > "$2"
	tail -c +$(($(wc -c < c.kva) / 2 + 1)) c.kva >&3
	exec 3>&-
	wait $pid
	echo "exit $?"
	find . -name '*back*'
}
# shellcheck disable=SC2154 # top: of run.sh
cp "$top/tests/data/models/llama.gguf" m.gguf
kv train -q -o p.kvp --level 6 --model m.gguf c.safetensors > fitted.txt
kv pack -q -o c.kva --model m.gguf --profile p.kvp --embed-profile c.safetensors
shrink m.gguf m.gguf

echo '# converted weights in the cache'
cp "$top/tests/data/models/llama.gguf" m.gguf
sleep 0.2 # what has just been written is not kept
export KVARC_CACHE=cache
kv test -q --model m.gguf c.kva
shrink m.gguf "$(find cache -name '*.kvw')"
