#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""One life of a llama.cpp server: save a slot or restore one, then go on.

engine.py MODEL.gguf FOLDER TYPE FLASH save|restore NAME

TYPE is the cache type (f16, bf16, q8_0), FLASH 1 or 0. `save` reads a prompt,
saves slot 0 as FOLDER/NAME and continues; `restore` restores FOLDER/NAME in a new
server and continues with the same words. Prints one JSON line: the next 16 tokens
(greedy) with their probabilities, and how many tokens came from the cache.
Listens on loopback only; ends by itself.
"""
import json
import os
import sys
import threading
import urllib.request

PROMPT = (
    'A cache of keys and values is what a language model remembers of a text. '
    'It grows with every word, and it is the same for the same words. '
    'A program that puts it away must bring it back exactly as it was. ') * 3
QUESTION = 'In one sentence, such a program is'
LIMIT_SECONDS = 240


def main(model, folder, kind, flash, action, name):
    import xllamacpp as x
    watch = threading.Timer(LIMIT_SECONDS, lambda: os._exit(3))
    watch.daemon = True
    watch.start()
    p = x.CommonParams()
    p.model.path = model
    p.n_ctx, p.n_parallel, p.n_predict, p.warmup = 1024, 1, 1, False
    p.slot_save_path = os.path.join(os.path.abspath(folder), '')
    p.endpoint_slots = True
    p.cpuparams.n_threads = 2
    p.cache_type_k = p.cache_type_v = getattr(
        x.ggml_type, 'GGML_TYPE_' + kind.upper())
    attention = x.llama_flash_attn_type
    p.flash_attn_type = (attention.LLAMA_FLASH_ATTN_TYPE_ENABLED
                         if flash == '1' else
                         attention.LLAMA_FLASH_ATTN_TYPE_DISABLED)
    server = x.Server(p)
    if not server.listening_address.startswith('http://127.0.0.1:'):
        sys.exit('not on loopback: ' + server.listening_address)

    def post(path, body):
        request = urllib.request.Request(
            server.listening_address + path, json.dumps(body).encode(),
            {'Content-Type': 'application/json'})
        return json.loads(urllib.request.urlopen(request, timeout=120).read())

    if action == 'save':
        post('/completion', {'prompt': PROMPT, 'n_predict': 1, 'id_slot': 0,
                             'cache_prompt': True, 'temperature': 0})
        post('/slots/0?action=save', {'filename': name})
    else:
        post('/slots/0?action=restore', {'filename': name})
    r = post('/completion', {
        'prompt': PROMPT + QUESTION, 'n_predict': 16, 'temperature': 0,
        'cache_prompt': True, 'id_slot': 0, 'return_tokens': True,
        'n_probs': 1})
    print(json.dumps({
        'tokens': r['tokens'], 'content': r['content'],
        'logprobs': [t['logprob'] for t in r['completion_probabilities']],
        'cached': r['timings']['cache_n']}))
    sys.stdout.flush()
    os._exit(0)


if __name__ == '__main__':
    if len(sys.argv) != 7:
        sys.exit(__doc__)
    main(*sys.argv[1:])
