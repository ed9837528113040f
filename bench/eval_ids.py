#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Texts for `kvarc eval`: eval_ids.py FOLDER [TEXT], as token ids of SmolLM2.

Writes FOLDER/prose.txt, of the test text (WikiText-2; TEXT as in make_caches.py),
and FOLDER/code.txt, of modules of the Python standard library that
make_caches.py does not calibrate with. Ids one after another, 40,000 tokens each.
Needs `setup.sh FOLDER models`.
"""
import glob
import os
import sys

import common as c

TOKENS = 40000


def code():
    files = sorted(glob.glob(os.path.join(os.path.dirname(os.__file__), '*.py')))
    text = ''
    for path in files[80:]:
        with open(path, encoding='utf-8', errors='replace') as f:
            text += f.read()
        if len(text) > 8 * TOKENS:
            break
    return text


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    from transformers import AutoTokenizer
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    path, name = os.path.split(c.gguf())
    tokenizer = AutoTokenizer.from_pretrained(path, gguf_file=name)
    texts = sys.argv[2] if len(sys.argv) > 2 else c.SHARED
    for name, text in (('prose', c.text(texts, 'test')), ('code', code())):
        ids = tokenizer(text[:8 * TOKENS])['input_ids'][:TOKENS]
        with open(os.path.join(folder, name + '.txt'), 'w') as f:
            f.write(' '.join(map(str, ids)) + '\n')


if __name__ == '__main__':
    main()
