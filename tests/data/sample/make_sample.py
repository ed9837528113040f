#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Make the two files of this folder; README.md says from what.

make_sample.py cut DUMP.safetensors TOKENS OUT.safetensors
    the first TOKENS tokens of every layer of a longer dump
make_sample.py slot MODEL.gguf SAMPLE.safetensors OUT.slot
    the same tokens through a llama.cpp server (package xllamacpp), saved as
    a slot file with an F16 cache; loopback only, stops by itself
"""
import json
import os
import struct
import sys
import urllib.request

SIZES = {'I32': 4, 'BF16': 2, 'F16': 2, 'F32': 4, 'F8_E4M3': 1}


def read_safetensors(path):
    with open(path, 'rb') as f:
        head = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
        data = f.read()
    return head, data


def cut(dump, tokens, out):
    """Tensors are [heads, tokens, channels], `tokens` is [tokens]."""
    head, data = read_safetensors(dump)
    head.pop('__metadata__', None)
    parts, new, at = [], {}, 0
    for name, t in sorted(head.items(), key=lambda i: i[1]['data_offsets']):
        raw = data[slice(*t['data_offsets'])]
        shape = list(t['shape'])
        axis = 1 if len(shape) == 3 else 0
        inner = SIZES[t['dtype']] * (shape[2] if axis else 1)
        whole = shape[axis] * inner
        part = b''.join(raw[i:i + tokens * inner]
                        for i in range(0, len(raw), whole))
        shape[axis] = tokens
        new[name] = {'dtype': t['dtype'], 'shape': shape,
                     'data_offsets': [at, at + len(part)]}
        parts.append(part)
        at += len(part)
    text = json.dumps(new, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    with open(out, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + b''.join(parts))


def slot(model, sample, out):
    import xllamacpp as x
    head, data = read_safetensors(sample)
    raw = data[slice(*head['tokens']['data_offsets'])]
    ids = list(struct.unpack('<%di' % (len(raw) // 4), raw))
    folder, name = os.path.split(os.path.abspath(out))
    p = x.CommonParams()
    p.model.path = model
    p.n_ctx, p.n_parallel, p.n_predict, p.warmup = 1024, 1, 1, False
    p.slot_save_path, p.endpoint_slots = os.path.join(folder, ''), True
    p.cpuparams.n_threads = 2
    p.cache_type_k = p.cache_type_v = x.ggml_type.GGML_TYPE_F16
    p.flash_attn_type = x.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    server = x.Server(p)

    def post(path, body):
        r = urllib.request.Request(server.listening_address + path,
                                   json.dumps(body).encode(),
                                   {'Content-Type': 'application/json'})
        return json.loads(urllib.request.urlopen(r).read())

    print('text:', post('/detokenize', {'tokens': ids})['content'])
    post('/completion', {'prompt': ids, 'n_predict': 1, 'cache_prompt': True,
                         'id_slot': 0})
    print(post('/slots/0?action=save', {'filename': name}))
    sys.stdout.flush()
    os._exit(0)


if __name__ == '__main__':
    if len(sys.argv) == 5 and sys.argv[1] == 'cut':
        cut(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    elif len(sys.argv) == 5 and sys.argv[1] == 'slot':
        slot(*sys.argv[2:])
    else:
        sys.exit(__doc__)
