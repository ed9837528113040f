#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What a server does with a shorter slot: salvaged.py MODEL.gguf SLOT TYPE save|restore|fresh

TYPE is the cache type (f16, bf16, q8_0), TYPE/0 without flash attention.
`save` has a server read 700 tokens of text and save its slot as SLOT.
`restore` restores SLOT in a new server, `fresh` reads the same tokens from the start. Both then
go on (greedy, 16 tokens) after the tokens of SLOT. Prints one JSON line: tokens in
the file, tokens restored, tokens that came from the cache, and the next ones.
Listens on loopback only; ends by itself.
"""
import json
import os
import struct
import sys
import threading
import urllib.request

LIMIT_SECONDS, SAVED = 240, 700


def token_ids(path):
    """Of a packed token list (the server's) or a plain one."""
    with open(path, 'rb') as f:
        _, _, words = struct.unpack('<3I', f.read(12))
        ids = list(struct.unpack(f'<{words}i', f.read(4 * words)))
    return ids[3:3 + ids[2]] if ids[0] == -1 else ids


def following(ids):
    """The token that followed the last five of them before; else the second one."""
    for i in range(len(ids) - 6, -1, -1):
        if ids[i:i + 5] == ids[-5:]:
            return [ids[i + 5]]
    return [ids[1]]


def main(model, slot, kind, action):
    import xllamacpp as x
    watch = threading.Timer(LIMIT_SECONDS, lambda: os._exit(3))
    watch.daemon = True
    watch.start()
    p = x.CommonParams()
    p.model.path = model
    p.n_ctx, p.n_parallel, p.n_predict, p.warmup = 4096, 1, 1, False
    p.slot_save_path = os.path.join(os.path.dirname(os.path.abspath(slot)), '')
    p.endpoint_slots = True
    p.cpuparams.n_threads = 2
    kind, _, flash = kind.partition('/')
    p.cache_type_k = p.cache_type_v = getattr(x.ggml_type, 'GGML_TYPE_' + kind.upper())
    if flash == '0':
        p.flash_attn_type = x.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = x.Server(p)
    if not server.listening_address.startswith('http://127.0.0.1:'):
        sys.exit('not on loopback: ' + server.listening_address)

    def post(path, body):
        request = urllib.request.Request(
            server.listening_address + path, json.dumps(body).encode(), {'Content-Type': 'application/json'})
        return json.loads(urllib.request.urlopen(request, timeout=120).read())

    if action == 'save':
        # text, so that the next tokens are not a matter of the last bits of the probabilities
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'COPYING')) as f:
            text = f.read()
        ids = post('/tokenize', {'content': text * 3, 'add_special': True})['tokens']
        post('/completion', {'prompt': ids[:SAVED], 'n_predict': 1, 'temperature': 0, 'cache_prompt': True,
                             'id_slot': 0})
        post('/slots/0?action=save', {'filename': os.path.basename(slot)})
        os._exit(0)
    ids, restored = token_ids(slot), 0
    if action == 'restore':
        restored = post('/slots/0?action=restore', {'filename': os.path.basename(slot)})['n_restored']
    else:
        post('/completion', {'prompt': ids, 'n_predict': 1, 'temperature': 0, 'cache_prompt': True, 'id_slot': 0})
    r = post('/completion', {'prompt': ids + following(ids), 'n_predict': 16, 'temperature': 0, 'cache_prompt': True,
                             'id_slot': 0, 'return_tokens': True})
    print(json.dumps({'in_file': len(ids), 'restored': restored, 'cached': r['timings']['cache_n'],
                      'next': r['tokens']}))
    sys.stdout.flush()
    os._exit(0)


if __name__ == '__main__':
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
