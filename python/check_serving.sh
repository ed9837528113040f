#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Tests of the Python package with torch, transformers, mlx-lm, LMCache, vLLM and SGLang, on a CPU:
# check_serving.sh FOLDER [PYTEST-ARGUMENT...], with the build folder of the library in
# $KVARC_BUILD. Some 8 GB in FOLDER, from the network, once. KVARC_TRANSFORMERS: another version than
# 5.23.0, or newest. Arguments and last line as of check.sh.
#
# Engines are installed without what they need for GPUs: their storage classes are all that is used.
# vLLM's own tests of its file tier, from its source package, then run with KvarcTier instead
# (python/tests/vllm_swapped.py). With KVARC_SGLANG_TESTS, a checkout of SGLang's public repository,
# which no package has the tests of, those of its file backend run with KvarcHiCache instead
# (python/tests/sglang_swapped.py).
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
	install() { timeout 1800 "$folder/venv/bin/pip" install -q --disable-pip-version-check "$@"; }
	install 'setuptools >= 77' cffi numpy pytest ml_dtypes fsspec tqdm safetensors \
		torch==2.15.0 "transformers$([ "$version" = newest ] || echo "==$version")" \
		mlx mlx-cpu mlx-lm
	install --no-deps lmcache==0.5.6 vllm==0.33.0 sglang==0.5.23 compressed-tensors torchvision
	install prometheus_client numba py-cpuinfo aiohttp cachetools aiofile aiofiles msgspec pyzmq \
		awscrt cbor2 openai_harmony openai uvloop fastapi partial_json_parser llguidance dill \
		sentencepiece pybase64 pillow starlette loguru opentelemetry-api psutil requests blake3 \
		cloudpickle orjson ipython gguf sortedcontainers cryptography
	install 'moto[s3,server,iam]'
	install datasets
	install --no-deps nixl nixl-cu12 xgrammar apache-tvm-ffi
	touch "$folder/ready"
fi
if [ ! -e "$folder/vllm/tests" ]; then
	# pip unpacks the source package and cannot build it, which nobody needs
	rm -rf "$folder/unpacked" "$folder/vllm"
	mkdir "$folder/unpacked" "$folder/vllm"
	TMPDIR=$folder/unpacked timeout 600 "$folder/venv/bin/pip" download -q --no-clean --no-deps \
		--no-binary :all: --no-build-isolation --disable-pip-version-check -d "$folder/unpacked" \
		vllm==0.33.0 > "$folder/vllm.log" 2>&1 || :
	mv "$folder"/unpacked/*/vllm_*/tests "$folder/vllm/tests"
	rm -rf "$folder/unpacked"
fi
# an engine that cannot be imported is an error here
KVARC_TEST_SERVING=1
export KVARC_TEST_SERVING
status=0
"$here/check.sh" "$folder" "$@" > "$folder/log" 2>&1 || status=$?
grep -v '^python: ' "$folder/log"
(cd "$folder/vllm" && PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$folder/tree/python/src:$here/tests \
	"$folder/venv/bin/python" -m pytest -q -rs -p no:cacheprovider --noconftest -p vllm_swapped \
	tests/v1/kv_offload/tiering/test_fs_tier.py) || status=1
if [ -n "${KVARC_SGLANG_TESTS-}" ]; then
	(cd "$KVARC_SGLANG_TESTS" && PYTHONDONTWRITEBYTECODE=1 \
		PYTHONPATH=$folder/tree/python/src:$here/tests \
		"$folder/venv/bin/python" -m pytest -q -rs -p no:cacheprovider --noconftest \
		-p sglang_swapped test/registered/unit/mem_cache/test_hicache_file_lru_unit.py) || status=1
fi
grep '^python: ' "$folder/log"
exit "$status"
