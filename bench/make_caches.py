#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes the calibration caches of profiles.py: make_caches.py FOLDER [TEXT]

SmolLM2-135M-Instruct in bf16 with transformers on the processor. Needs: `setup.sh
FOLDER models`. TEXT is its folder, with wikitext2-valid.txt and wikitext2-test.txt
(default ../shared/data beside the repository). Writes

  wiki-00..29  1024 tokens each of the valid text, every 5120 tokens
  code-00..09  1024 tokens each of the Python standard library
  long         2048 tokens of the test text, from token 60000

20 minutes on 2 cores. Values differ in the last bits between processors.
"""
import functools
import glob
import os
import sys

import common as c


def standard_library():
    """Text of some modules; none that the measured code cache is made of."""
    files = sorted(glob.glob(os.path.join(os.path.dirname(os.__file__),
                                          '*.py')))[20:60]
    text = ''
    for path in files:
        with open(path, encoding='utf-8', errors='replace') as f:
            text += f.read()
    return text[:400000]


def load(folder=None):
    """Tokenizer and model, bf16: of a folder, or of the GGUF."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    where = {'pretrained_model_name_or_path': folder}
    if not folder:
        path, name = os.path.split(c.gguf())
        where = {'pretrained_model_name_or_path': path, 'gguf_file': name}
    return (AutoTokenizer.from_pretrained(**where),
            AutoModelForCausalLM.from_pretrained(**where, dtype=torch.bfloat16))


def dump(model, ids, path):
    import torch
    from safetensors.torch import save_file
    from transformers import DynamicCache
    with torch.no_grad():
        kv = model.model(ids[None], use_cache=True,
                         past_key_values=DynamicCache()).past_key_values
    t = {'tokens': ids.int()}
    for i, layer in enumerate(kv.layers):
        t['layers.%d.key' % i] = layer.keys[0].contiguous()
        t['layers.%d.value' % i] = layer.values[0].contiguous()
    save_file(t, path + '.safetensors')


def windows(engine, text, wanted):
    """wanted: of (path, first token, tokens)."""
    tokenizer, model = engine
    ids = tokenizer(text, return_tensors='pt').input_ids[0]
    for path, at, n in wanted:
        dump(model, ids[at:at + n], path)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = sys.argv[1]
    texts = sys.argv[2] if len(sys.argv) > 2 else c.SHARED
    engine = load()
    os.makedirs(folder, exist_ok=True)
    into = functools.partial(os.path.join, folder)
    windows(engine, c.text(texts, 'valid'),
            [(into('wiki-%02d' % w), w * 5120, 1024) for w in range(30)])
    windows(engine, standard_library(),
            [(into('code-%02d' % w), 80000 + w * 1500, 1024)
             for w in range(10)])
    windows(engine, c.text(texts, 'test'), [(into('long'), 60000, 2048)])


if __name__ == '__main__':
    main()
