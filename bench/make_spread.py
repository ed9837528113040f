#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes the model of models.py and its caches: make_spread.py FOLDER [TEXT]

The GGUF of SmolLM2-135M is on a 4-bit grid: a predictor that reads that grid knows
the weights of a bf16 engine almost exactly, and what it reaches would not carry over
to models published in 16 bits. So each linear layer gets uniform noise of one grid
step, block by block, seeded: the same bits everywhere. Needs what make_caches.py
needs; TEXT as there. Writes

  model        config.json, bf16 safetensors and the tokenizer
  wiki-00..11  1024 tokens each of the valid text, every 5120 tokens
  test-0, test-30000   1024 tokens each of the test text, from these tokens
  e4m3        the same caches in fp8 e4m3, as an engine with scales of 1 keeps them

10 minutes on 2 cores.
"""
import functools
import glob
import os
import sys

import common as c
import make_caches

BLOCK, LEVELS, SEED = 32, 15, 1


def spread(model):
    """Adds noise of one step of the grid to all linear layers."""
    import torch
    g = torch.Generator().manual_seed(SEED)
    for name, p in model.named_parameters():
        if p.dim() != 2 or 'embed' in name or 'lm_head' in name:
            continue
        b = p.data.reshape(p.shape[0], -1, BLOCK)
        step = (b.amax(-1, keepdim=True) - b.amin(-1, keepdim=True)) / LEVELS
        noise = torch.rand(b.shape, generator=g) - .5
        p.data = (b + noise * step).reshape(p.shape)


def forget_gguf(model):
    """What would make transformers save it as a quantised model."""
    import torch
    if hasattr(model.config, 'quantization_config'):
        del model.config.quantization_config
    for name in ('hf_quantizer', 'is_quantized', 'quantization_method'):
        if name in vars(model):
            delattr(model, name)
    model.config.dtype = torch.bfloat16


def make_model(folder):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    path, name = os.path.split(c.gguf())
    model = AutoModelForCausalLM.from_pretrained(path, gguf_file=name,
                                                 dtype=torch.float32)
    spread(model)
    model = model.to(torch.bfloat16)
    forget_gguf(model)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(path, gguf_file=name).save_pretrained(folder)


def cast_to_e4m3(source, path):
    import torch
    from safetensors.torch import load_file, save_file
    save_file({name: t if name == 'tokens' else t.to(torch.float8_e4m3fn)
               for name, t in load_file(source).items()}, path)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    into = functools.partial(os.path.join, sys.argv[1])
    texts = sys.argv[2] if len(sys.argv) > 2 else c.SHARED
    if not os.path.exists(into('model', 'config.json')):
        make_model(into('model'))
    engine = make_caches.load(into('model'))
    make_caches.windows(engine, c.text(texts, 'valid'),
                        [(into('wiki-%02d' % w), w * 5120, 1024)
                         for w in range(12)])
    make_caches.windows(engine, c.text(texts, 'test'),
                        [(into('test-%d' % at), at, 1024)
                         for at in (0, 30000)])
    os.makedirs(into('e4m3'), exist_ok=True)
    for source in glob.glob(into('*.safetensors')):
        cast_to_e4m3(source, into('e4m3', os.path.basename(source)))


if __name__ == '__main__':
    main()
