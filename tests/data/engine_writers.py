# SPDX-License-Identifier: BSD-3-Clause
"""Files of engines, written as their sources write them (real writers are named where they run).

A cache is a list of layers (key, value): bytes of [heads, tokens, channels] elements of 2 bytes, bf16.
Standard library only; the same bytes every time.

Sources: mlx_lm/models/cache.py of mlx-lm 0.31.3 and 0.32.2 (save_prompt_cache); omlx/cache/
paged_ssd_cache.py of oMLX (save_block); vmlx block disk store (_serialize_block); vLLM's
ExampleConnector (save_kv_layer); numpy.savez of arrays of ml_dtypes.bfloat16.
"""
import io
import json
import struct
import tarfile
import zipfile

STEP = 256  # tokens that a buffer of mlx-lm grows by


class Cache:
    def __init__(self, layers, heads, tokens, channels):
        self.layers, self.heads, self.tokens, self.channels = layers, heads, tokens, channels

    def part(self, first, n):
        """The tokens [first, first + n)."""
        row = self.channels * 2
        size = self.tokens * row

        def cut(x):
            return b''.join(x[h * size + first * row:h * size + (first + n) * row]
                            for h in range(self.heads))
        return Cache([(cut(k), cut(v)) for k, v in self.layers], self.heads, n, self.channels)

    def padded(self, tokens):
        """Zero rows behind the tokens."""
        size = self.tokens * self.channels * 2
        zeros = bytes((tokens - self.tokens) * self.channels * 2)

        def pad(x):
            return b''.join(x[h * size:(h + 1) * size] + zeros for h in range(self.heads))
        return Cache([(pad(k), pad(v)) for k, v in self.layers], self.heads, tokens, self.channels)

    def rotated(self, at):
        """The last tokens first, as a ring buffer whose next row is `at` has them."""
        a, b = self.part(self.tokens - at, at), self.part(0, self.tokens - at)
        return a.joined(b)

    def joined(self, other):
        mine, more = (c.tokens * self.channels * 2 for c in (self, other))

        def join(x, y):
            return b''.join(x[h * mine:(h + 1) * mine] + y[h * more:(h + 1) * more]
                            for h in range(self.heads))
        layers = [(join(k, k2), join(v, v2)) for (k, v), (k2, v2) in zip(self.layers, other.layers)]
        return Cache(layers, self.heads, self.tokens + other.tokens, self.channels)

    def tokens_first(self, x):
        """[tokens, heads, channels]."""
        row = self.channels * 2
        return b''.join(x[(h * self.tokens + t) * row:(h * self.tokens + t + 1) * row]
                        for t in range(self.tokens) for h in range(self.heads))

    @property
    def shape(self):
        return [1, self.heads, self.tokens, self.channels]


def load(path):
    """A file of layers.N.key and layers.N.value, [heads, tokens, channels] in bf16."""
    with open(path, 'rb') as f:
        head = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
        data = f.read()
    layers = []
    while 'layers.%d.key' % len(layers) in head:
        entries = [head['layers.%d.%s' % (len(layers), kind)] for kind in ('key', 'value')]
        layers.append(tuple(data[slice(*e['data_offsets'])] for e in entries))
        assert entries[0]['dtype'] == 'BF16'
    return Cache(layers, *entries[0]['shape'])


def safetensors(tensors, metadata=None):
    """tensors: name, dtype, shape, bytes."""
    head, at = {}, 0
    if metadata:
        head['__metadata__'] = metadata
    for name, dtype, shape, data in tensors:
        head[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    return struct.pack('<Q', len(text)) + text + b''.join(t[3] for t in tensors)


def i32(*values):
    return struct.pack('<%di' % len(values), *values)


def pairs(cache, names, shape=None, dtype='BF16'):
    return [(name.format(i), dtype, shape or cache.shape, x) for i, layer in enumerate(cache.layers)
            for name, x in zip(names, layer)]


# ----- mlx-lm ------------------------------------------------------------

def mlx_0_32(cache, kind='KVCache', max_size=0):
    """The state is keys, values and numbers; the buffer is saved whole."""
    rotating = kind == 'RotatingKVCache'
    whole = cache if rotating else cache.padded(-(-cache.tokens // STEP) * STEP)
    numbers = (cache.tokens + 7, 4, max_size, 11) if rotating else (cache.tokens,)
    tensors = pairs(whole, ('{}.0', '{}.1'))
    metadata = {'2.0': ''}
    at = 1
    for i in range(len(cache.layers)):
        metadata['1.%d' % i] = kind
        for j, value in enumerate(numbers, 2):
            tensors.append(('%d.%d' % (i, j), 'I32', [], i32(value)))
            metadata.update({'2.%d.0' % at: '%d.%d' % (i, j), '2.%d.1' % at: 'scalar'})
            at += 1
    return safetensors(tensors, metadata)


def mlx_0_31(cache, kind='KVCache'):
    """The state is keys and values; numbers are metadata."""
    metadata = {'1.model': 'made up'}
    for i in range(len(cache.layers)):
        metadata.update({'0.%d' % i: '', '2.%d' % i: kind})
    return safetensors(pairs(cache, ('{}.0', '{}.1')), metadata)


def mlx_0_31_list(cache, other):
    """A CacheList of two caches a layer."""
    metadata, tensors = {}, []
    for i, layers in enumerate(zip(cache.layers, other.layers)):
        metadata['2.%d' % i] = 'CacheList'
        for j, (k, v) in enumerate(layers):
            metadata.update({'0.%d.0.%d' % (i, j): 'KVCache', '0.%d.1.%d' % (i, j): ''})
            tensors += [('%d.%d.0' % (i, j), 'BF16', cache.shape, k),
                        ('%d.%d.1' % (i, j), 'BF16', cache.shape, v)]
    return safetensors(tensors, metadata)


def quantised(cache, name, layer):
    """8 bits in groups of 64: words, scales and biases for keys and for values (not real ones)."""
    words = [1, cache.heads, cache.tokens, cache.channels // 4]
    scales = [1, cache.heads, cache.tokens, 1]
    n = cache.heads * cache.tokens * 2
    for j, x in enumerate(layer):
        yield '%s.%d.0' % (name, j), 'U32', words, x[:len(x) // 2]
        yield '%s.%d.1' % (name, j), 'BF16', scales, x[:n]
        yield '%s.%d.2' % (name, j), 'BF16', scales, x[-n:]


def mlx_quantised(cache):
    metadata, tensors = {'2.0': ''}, []
    for i, layer in enumerate(cache.layers):
        metadata['1.%d' % i] = 'QuantizedKVCache'
        tensors += quantised(cache, str(i), layer)
    return safetensors(tensors, metadata)


def two_states(cache):
    """A convolution and a recurrent state."""
    return [('BF16', [1, 3, cache.channels], cache.layers[0][0][:3 * cache.channels * 2]),
            ('F32', [1, cache.heads, 2, cache.channels], bytes(cache.heads * 2 * cache.channels * 4))]


def mlx_0_32_list(cache):
    """A CacheList a layer: an ArraysCache and a KVCache; in odd layers a quantised one and a KVCache.

    The state of each of them, and behind it its class: a text, which is a tensor of code points.
    """
    metadata, tensors, scalars = {}, [], []

    def text(name, value):
        tensors.append((name, 'I32', [len(value)], b''.join(i32(ord(c)) for c in value)))
        scalars.append((name, 'string'))

    def number(name, value):
        tensors.append((name, 'I32', [], i32(value)))
        scalars.append((name, 'scalar'))
    for i, (k, v) in enumerate(cache.layers):
        metadata['1.%d' % i] = 'CacheList'
        if i % 2 == 0:
            tensors += [('%d.0.0.0.%d' % (i, j), *a) for j, a in enumerate(two_states(cache))]
            for j in 1, 2:  # no left padding, no lengths
                tensors.append(('%d.0.0.%d' % (i, j), 'F32', [0], b''))
                scalars.append((tensors[-1][0], 'none'))
            text('%d.0.1' % i, 'ArraysCache')
        else:
            tensors += quantised(cache, '%d.0.0' % i, (k, v))
            for j, value in enumerate((cache.tokens, 64, 8), 2):
                number('%d.0.0.%d' % (i, j), value)
            text('%d.0.1' % i, 'QuantizedKVCache')
        tensors += [('%d.1.0.0' % i, 'BF16', cache.shape, k), ('%d.1.0.1' % i, 'BF16', cache.shape, v)]
        number('%d.1.0.2' % i, cache.tokens)
        text('%d.1.1' % i, 'KVCache')
    metadata['2.0'] = ''
    for n, (name, kind) in enumerate(scalars, 1):
        metadata.update({'2.%d.0' % n: name, '2.%d.1' % n: kind})
    return safetensors(tensors, metadata)


def mlx_hybrid(cache, version):
    """Layer 0 is an ArraysCache of convolution and recurrent state, the others are a KVCache."""
    form = '0.0.%d' if version >= 32 else '0.%d'
    tensors = [(form % j, *a) for j, a in enumerate(two_states(cache))]
    tensors += [t for t in pairs(cache, ('{}.0', '{}.1')) if not t[0].startswith('0.')]
    where = '1' if version >= 32 else '2'
    return safetensors(tensors, {'%s.%d' % (where, i): 'KVCache' if i else 'ArraysCache'
                                 for i in range(len(cache.layers))})


# ----- oMLX, vmlx ---------------------------------------------------------

def omlx(cache, version, hybrid=False):
    """A block of the SSD cache; hybrid: layer 0 has a convolution state and a recurrent one."""
    types = ['ArraysCache' if hybrid and i == 0 else 'KVCache' for i in range(len(cache.layers))]
    names = ('layer_{}_keys', 'layer_{}_values') if version == 2 else \
        ('layer_{}_state_0', 'layer_{}_state_1')
    tensors = pairs(cache, names)
    if hybrid:
        tensors[0] = (tensors[0][0], 'BF16', [1, 3, cache.channels], tensors[0][3][:6 * cache.channels])
        tensors[1] = (tensors[1][0], 'F32', [1, cache.heads, 2, cache.channels],
                      bytes(cache.heads * cache.channels * 8))
    metadata = {'omlx_cache_format_version': str(version), 'block_hash': '00' * 32,
                'token_count': str(cache.tokens), 'num_layers': str(len(types)),
                'model_name': 'made up', 'block_size': str(cache.tokens), 'created_at': '0.0',
                'layer_cache_types': json.dumps(types),
                'layer_meta_states': json.dumps([[] for _ in types])}
    if version == 3:
        metadata.update({'layer_%d_state_count' % i: '2' for i in range(len(types))})
    return safetensors(tensors, metadata)


def vmlx(cache):
    """A block; what it says of itself is JSON in a tensor of bytes."""
    about = json.dumps({'__layer_types__': {str(i): 'kv' for i in range(len(cache.layers))}}).encode()
    tensors = pairs(cache, ('layer_{}_keys', 'layer_{}_values'))
    tensors.append(('__vmlx_block_meta__', 'U8', [len(about)], about))
    return safetensors(tensors)


# ----- vLLM ----------------------------------------------------------------

def vllm_layer(cache, i, packed):
    """One file: [tokens, heads, 2 * channels] as of RFC 42082, or before [2, tokens, width]."""
    k, v = (cache.tokens_first(x) for x in cache.layers[i])
    row = cache.channels * 2
    if packed:
        data = b''.join(k[j:j + row] + v[j:j + row] for j in range(0, len(k), row))
        shape = [cache.tokens, cache.heads, 2 * cache.channels]
    else:
        data, shape = k + v, [2, cache.tokens, cache.heads * cache.channels]
    return safetensors([('kv_cache', 'BF16', shape, data)])


def vllm_folder(cache, packed):
    """A tar file of the folder of a prompt: a file for each layer."""
    files = [('0123456789abcdef/model.layers.%d.self_attn.attn.safetensors' % i,
              vllm_layer(cache, i, packed)) for i in range(len(cache.layers))]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=tarfile.USTAR_FORMAT) as t:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()


# ----- transformers, numpy --------------------------------------------------

def batch(cache):
    """A dump of the layers of a DynamicCache, two sequences."""
    n = cache.tokens // 2
    a, b = cache.part(0, n), cache.part(n, n)
    both = Cache([(k + k2, v + v2) for (k, v), (k2, v2) in zip(a.layers, b.layers)],
                 cache.heads, n, cache.channels)
    return safetensors(pairs(both, ('layers.{}.keys', 'layers.{}.values'),
                             [2, cache.heads, n, cache.channels]))


def npz(cache, descr='<V2'):
    """numpy.savez; <V2 is what it writes for bfloat16 of ml_dtypes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w', zipfile.ZIP_STORED) as z:
        for name, _, shape, data in pairs(cache, ('layers.{}.keys', 'layers.{}.values')):
            text = "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }" % \
                (descr, ', '.join(map(str, shape)))
            text += ' ' * (-(10 + len(text) + 1) % 64) + '\n'
            head = b'\x93NUMPY\x01\0' + struct.pack('<H', len(text)) + text.encode()
            info = zipfile.ZipInfo(name + '.npy', (2026, 11, 24, 0, 0, 0))
            z.writestr(info, head + data)
    return out.getvalue()
