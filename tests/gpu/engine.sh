#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# engine.sh - models of every architecture through the kernels of the exact engine on the host: the
# same bits as the library's engine. Runs in the build folder. TOKENS: of a sequence.
set -eu
srcdir=${srcdir:-.}
models=$srcdir/tests/data/models
check=${CHECK_ENGINE:-./tests/gpu/check_engine}

# GGUF files have quantised matrices, of groups of 16 and 32 and with minima; folders have floats.
"$check" -n "${TOKENS:-300}" "$models"/*.gguf "$models"/llama "$models"/mistral "$models"/qwen2 \
	"$models"/qwen3 "$models"/gemma3 "$models"/gpt2
# Matrices and heads of several tiles, heads of the most channels, more than two blocks of attention.
"$check" -n 70 -c 75
"$check" -n 40 -c 256
"$check" -n "${TOKENS:-530}" -c 16
