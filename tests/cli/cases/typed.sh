# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Tensors that no rule knows are coded by their types; the message has a rule that fits them.
needs JANSSON
# the names of the sample's tensors, changed in the header, which keeps its length
sed 's/"layers\.\([0-9]*\)\.key"/"layers.\1.kcc"/g; s/"layers\.\([0-9]*\)\.value"/"layers.\1.vccca"/g' \
	"$TENSORS" > dump.safetensors
kv pack dump.safetensors 2>&1 | sed 's/ -> .*//'
kv info dump.safetensors.kva | sed -n -e 's/^  \(layout\|cache\|codecs\)  */\1 /p'
kv test dump.safetensors.kva
kv pack -q -o bytes.kva --opaque dump.safetensors
# by type it is at most 9/10 of what bytes are
typed=$(wc -c < dump.safetensors.kva) bytes=$(wc -c < bytes.kva)
[ $((typed * 10)) -lt $((bytes * 9)) ] || echo "$typed bytes by type, $bytes as bytes"
mv dump.safetensors was
kv unpack -q dump.safetensors.kva
cmp dump.safetensors was
# elements that a tier would change are of a cache only
kv pack -q -o lossy.kva --tier near:0.5 dump.safetensors
kv unpack -q -c lossy.kva | cmp - dump.safetensors
# a rule
kv pack -f -q --kv-rule 'layers.{layer}.{kcc|vccca}' dump.safetensors
kv info dump.safetensors.kva | sed -n -e 's/^  \(layout\|cache\)  */\1 /p'
