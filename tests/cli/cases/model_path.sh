# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Models by KVARC_MODEL_PATH, installed profiles, the weight cache.
needs JANSSON
# shellcheck disable=SC2154 # top: of run.sh
mkdir -p data/models/hub/a data/none
for m in gpt2 gemma3 qwen2; do cp "$top/tests/data/models/$m.gguf" data/models; done
cp "$top/tests/data/models/llama.gguf" data/models/hub/a/some.gguf
ln -s ../.. data/models/hub/loop
echo no model > data/models/bad.gguf
ln -s "$top/tests/data/models/llama.gguf" llama.gguf
small_cache > c.safetensors
HOME=$PWD/home
unset XDG_CACHE_HOME
export HOME
digests() {
	sed -E "s|$PWD/||g; s|, [^ ]*share/kvarc/profiles|, SYSTEM|" | sed -E 's/[0-9a-f]{32}/DIGEST/g; s/[0-9.]+ (kB|MB|B)/SIZE/g; s/ +/ /g'
}
kv train -q -o p.kvp --level 5 --model llama.gguf c.safetensors > fitted.txt
kv pack -q -5 --model llama.gguf --profile p.kvp -o a.kva c.safetensors
echo "# profiles"
kv profiles 2>&1 | digests
kv profiles install p.kvp 2>&1 | digests
kv profiles install p.kvp 2>&1 | digests
kv profiles list | digests
kv profiles list c.safetensors 2>&1 | digests
kv profiles list --model llama.gguf c.safetensors | digests
kv profiles list a.kva --json | digests
kv profiles list "$SLOT" 2>&1 | sed "s|$SLOT|slot|" | digests
kv profiles -q
echo "# models"
kv unpack -q -o b a.kva 2>&1 | digests
KVARC_MODEL_PATH=$PWD/data/none
export KVARC_MODEL_PATH
kv unpack -q -o b a.kva 2>&1 | digests
kv test a.kva 2>&1 | digests
KVARC_MODEL_PATH=nowhere:$PWD/data/none:$PWD/data/models
kv unpack -v -o b a.kva 2>&1 | sed -E "s|$PWD/||; s|, [0-9.]+ [kMG]?B/s||"
cmp b c.safetensors
kv test a.kva
cat a.kva | kv test -
# an archive that needs none
kv pack -q -o one.kva c.safetensors
kv unpack -v -o one one.kva 2>&1 | grep -c weights
echo "# the weight cache"
KVARC_CACHE=cache
kv weights list
kv test a.kva
kv weights list | digests | sed -E 's/[0-9]+-[0-9]+-[0-9]+ [0-9:]+/DATE/'
kv weights --json | sed -E 's/[0-9a-f]{32}/DIGEST/; s/"used":"[^"]*"/"used":DATE/; s/:[0-9]+/:N/'
touch cache/mine
kv weights clear -v 2>&1 | digests
kv weights list | digests
names | grep cache
KVARC_CACHE=off
kv weights
kv weights frobnicate
kv profiles frobnicate
kv profiles install
kv profiles install c.safetensors
kv profiles list nosuch
