#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes slots of llama.cpp to train and to measure on: make_slots.py FOLDER [TEXT]

F16, of the Q4_1 GGUF of SmolLM2-135M-Instruct, run on the processor. Needs
`setup.sh FOLDER models`; TEXT as for make_caches.py. Writes

  wiki-00..11.slot   4800 letters each (some 1100 tokens) of the valid text
  test-0.slot, test-1.slot   as many of the test text

Five minutes of a processor. The server listens on the loopback only.
"""
import json
import os
import sys
import urllib.request

import common as c

LETTERS = 4800
CALIBRATION, STRIDE = 12, 90000
TESTS = (150000, 700000)


def serve(folder, threads, gguf=None):
    """A server that saves slots into the folder, and its address."""
    import xllamacpp as x
    p = x.CommonParams()
    p.model.path = gguf or c.gguf()
    p.n_ctx, p.n_parallel, p.n_predict, p.warmup = 2048, 1, 1, False
    p.slot_save_path, p.endpoint_slots = os.path.join(folder, ''), True
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
    p.cache_type_k = p.cache_type_v = x.ggml_type.GGML_TYPE_F16
    p.flash_attn_type = x.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    server = x.Server(p)
    return server, server.listening_address


def post(url, body):
    r = urllib.request.Request(url, json.dumps(body).encode(),
                               {'Content-Type': 'application/json'})
    with urllib.request.urlopen(r) as answer:
        return json.loads(answer.read())


def prefill(url, text):
    return post(url + '/completion', {'prompt': text, 'n_predict': 1,
                                      'id_slot': 0, 'cache_prompt': False})


def save(url, name, text):
    prefill(url, text)
    r = post(url + '/slots/0?action=save', {'filename': name})
    print('%s: %d tokens, %d bytes' % (name, r['n_saved'], r['n_written']))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = os.path.abspath(sys.argv[1])
    texts = sys.argv[2] if len(sys.argv) > 2 else c.SHARED
    os.makedirs(folder, exist_ok=True)
    server, url = serve(folder, os.cpu_count())
    valid, test = (c.text(texts, part) for part in ('valid', 'test'))
    for i in range(CALIBRATION):
        at = i * STRIDE
        save(url, 'wiki-%02d.slot' % i, valid[at:at + LETTERS])
    for i, at in enumerate(TESTS):
        save(url, 'test-%d.slot' % i, test[at:at + LETTERS])
    sys.stdout.flush()
    os._exit(0)  # the server has threads that would wait


if __name__ == '__main__':
    main()
