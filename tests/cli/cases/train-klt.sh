# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# What tier klt is expected to take with a profile of transforms.
kv train -v --klt -o a.kvp "$TENSORS" 2> note | sed -e 4q
sed -e 's/in [0-9]* s/in N s/; s/[0-9.]* [kM]B/N kB/' note
kv train --klt --json -f -o b.kvp "$TENSORS" | tr , '\n' | grep -e '^"tokens' -e '^"klt_[34]' | head -n 4
cmp a.kvp b.kvp
kv train --klt -q -f -o b.kvp "$TENSORS"
kv pack -q --profile a.kvp --tier klt:3,exact=0 -o a.kva "$TENSORS"
kv info a.kva | grep '^  size'
kv pack --profile a.kvp -o b.kva "$TENSORS"
kv cut -q --profile a.kvp -o b.kva --layers 1-2 a.kva
kv test --profile a.kvp b.kva
kv train --group 2 -o c.kvp "$TENSORS"
kv train --klt --group 0 -o c.kvp "$TENSORS"

# With the model: heads that it depends on more have finer steps.
needs JANSSON
# shellcheck disable=SC2154 # top: of run.sh
ln -s "$top/tests/data/models/llama.gguf" model.gguf
ln -s "$top/spec/vectors/transformer.gguf" headless.gguf
ln -s "$TENSORS" tensors
small_cache 160 > c.safetensors
small_cache > short.safetensors
kv train -v --klt -f -o a.kvp c.safetensors 2> /dev/null | sed 3q
kv train -v --klt -f --model model.gguf -o a.kvp c.safetensors 2> /dev/null | sed 3q
kv train --klt -q -f --model model.gguf -o b.kvp c.safetensors
cmp a.kvp b.kvp
kv train --klt -q -f --model model.gguf -o b.kvp short.safetensors
kv train --klt -q -f --model headless.gguf -o b.kvp c.safetensors
kv train --klt -f --model model.gguf -o b.kvp tensors
kv train -q -6 --model model.gguf -o six.kvp c.safetensors
kv pack --profile six.kvp -o x.kva c.safetensors
kv pack -q -6 --profile six.kvp --model model.gguf -o x.kva c.safetensors
small_cache 10 > ten.safetensors
kv train --klt -f -o b.kvp ten.safetensors
echo no >> no-model
kv train --klt -f --model no-model -o b.kvp c.safetensors
kv train --klt --level 4 -o d.kvp c.safetensors
kv train --klt --no-stages -o d.kvp c.safetensors
