#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Write the torch-*.pt files of import/: make_torch_data.py [FOLDER]

Needs torch (2.15) and transformers (5.23): these are files of the real writers. Element bits say
where an element is: layer * 2048 + kv * 1024 + head * 512 + token * 16 + channel, of 2 layers with
2 heads, 5 tokens and 8 channels.
"""
import fractions
import os
import sys

import torch
from transformers import DynamicCache

folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
    os.path.dirname(os.path.abspath(__file__)), 'import')
all_bits = (torch.arange(2).view(2, 1, 1, 1, 1) * 2048 + torch.arange(2).view(2, 1, 1, 1) * 1024 +
            torch.arange(2).view(2, 1, 1) * 512 + torch.arange(5).view(5, 1) * 16 + torch.arange(8))
kv = all_bits.to(torch.int16).view(torch.bfloat16)  # layer, kv, head, token, channel


def save(name, x, **options):
    torch.save(x, os.path.join(folder, 'torch-' + name + '.pt'), **options)


def layer(i):
    return kv[i, 0][None].clone(), kv[i, 1][None].clone()


pairs = tuple(layer(i) for i in range(2))
save('tuple', pairs)
save('ids', {'past_key_values': pairs, 'input_ids': torch.arange(7, 12)[None]})
save('lists', {'key_cache': [k for k, v in pairs], 'value_cache': [v for k, v in pairs]})
cache = DynamicCache()
for i, (k, v) in enumerate(pairs):
    cache.update(k, v, i)
save('cache', cache)
save('protocol4', pairs, pickle_protocol=4)
# in memory: token, head, channel
save('views', tuple(tuple(x.transpose(1, 2).contiguous().transpose(1, 2) for x in p) for p in pairs))
one = kv.clone()
save('one-storage', {'layers': [{'key': one[i, 0], 'value': one[i, 1], 'again': one[i]}
                                for i in range(2)]})
save('other', {'pairs': pairs, 'x': fractions.Fraction(1, 3), 'y': 1 << 70, 'z': {1, 2},
               'w': bytearray(b'12345')}, pickle_protocol=5)
save('legacy', pairs, _use_new_zipfile_serialization=False)
# tensors with gaps, and one that two layers share: bytes, and once
save('gaps', tuple(tuple(x[..., :4] for x in p) for p in pairs))
save('twice', (pairs[0], pairs[0]))
