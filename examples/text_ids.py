#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Turn text into token ids for `kvarc train`, a sequence on each line.

    text_ids.py [--length N] [--first ID] TOKENIZER [TEXT...] > FILE

TOKENIZER is a tokenizer.json, or a folder with one; without TEXT standard input is read. Sequences have N tokens
(1024), each begins with ID where one is given: the token that the model's engine puts first. Needs tokenizers.
"""
import argparse
import os
import sys

from tokenizers import Tokenizer


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--length', type=int, default=1024)
    p.add_argument('--first', type=int)
    p.add_argument('tokenizer')
    p.add_argument('text', nargs='*')
    a = p.parse_args()
    path = os.path.join(a.tokenizer, 'tokenizer.json') if os.path.isdir(a.tokenizer) else a.tokenizer
    tokenizer = Tokenizer.from_file(path)
    first = [] if a.first is None else [a.first]
    step = a.length - len(first)
    for name in a.text or ['-']:
        with open(0 if name == '-' else name, encoding='utf-8') as f:
            ids = tokenizer.encode(f.read(), add_special_tokens=False).ids
        for at in range(0, len(ids), step):
            print(*first, *ids[at:at + step])


if __name__ == '__main__':
    main()
