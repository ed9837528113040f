#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Packs files that are made to take memory, under -M 64M, and prints the peak of each in MB.

    hostile_memory.py KVARC [LIMIT_MB]     default: 80

Exit status 1 when a peak is above the limit or a file does not come back. Python standard library.
"""
import filecmp
import http.server
import lzma
import os
import struct
import subprocess
import sys
import tempfile
import threading
import zipfile
import zlib

DICTIONARY = 1 << 30    # that the LZMA member declares
MEMBER = 600 << 20      # bytes of zeros in it


def json_header(objects):
    """A safetensors header of empty objects: 256 bytes of memory for 3 of the file."""
    text = b'{"a":[' + b','.join([b'{}'] * objects) + b']}'
    return struct.pack('<Q', len(text)) + text + bytes(100)


def zip_member(name, method, data, size, crc, padding):
    """A zip file of one member, with bytes in front of the directory that make the ratio harmless."""
    fields = struct.pack('<HHHHHIIIHH', 63, 2 if method == 14 else 0, method, 0, 33, crc, len(data), size,
                         len(name), 0)
    local = b'PK\3\4' + fields + name + data + bytes(padding)
    central = b'PK\1\2' + struct.pack('<H', 63) + fields + struct.pack('<HHHII', 0, 0, 0, 0, 0) + name
    return local + central + b'PK\5\6' + struct.pack('<HHHHIIH', 0, 0, 1, 1, len(central), len(local), 0)


def lzma_zip():
    """Zeros that need a window of a GiB, or so the header says."""
    crc = 0
    out = []
    filters = [{'id': lzma.FILTER_LZMA1, 'dict_size': 1 << 16, 'lc': 3, 'lp': 0, 'pb': 2, 'mode': lzma.MODE_FAST,
                'nice_len': 273, 'mf': lzma.MF_HC3}]
    coder = lzma.LZMACompressor(lzma.FORMAT_RAW, filters=filters)
    block = bytes(1 << 20)
    for _ in range(MEMBER >> 20):
        crc = zlib.crc32(block, crc)
        out.append(coder.compress(block))
    out.append(coder.flush())
    data = struct.pack('<BBHBI', 9, 4, 5, 93, DICTIONARY) + b''.join(out)
    return zip_member(b'slot', 14, data, MEMBER, crc, 700000)


def deflate_zip():
    coder = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = coder.compress(bytes(64 << 20)) + coder.flush()
    return zip_member(b'slot', 8, data, 64 << 20, zlib.crc32(bytes(64 << 20)), 0)


def make(folder):
    # json-762k is the largest header that is parsed under the limit
    for name, data in (('json-762k', json_header(254000)), ('json-1390k', json_header(463000)),
                       ('json-5500k', json_header(1833000)), ('zip-lzma', lzma_zip()),
                       ('zip-deflate', deflate_zip())):
        with open(os.path.join(folder, name), 'wb') as f:
            f.write(data)


def run(*arguments):
    """Exit status and peak in MB. This process has to stay small: a child starts with its peak."""
    process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_maxrss * 1024 / 1e6


def check(kvarc, limit, folder, name, *options):
    path, packed, back = (os.path.join(folder, x) for x in (name, 'packed.kva', 'back'))
    status, peak = run(kvarc, 'pack', '-f', '-T1', '-M', '64M', *options, '-o', packed, path)
    if status in (0, 2):
        status, _ = run(kvarc, 'unpack', '-q', '-f', '-o', back, packed)
    whole = status == 0 and ('--members' in options or filecmp.cmp(path, back, shallow=False))
    print(f'{name:12} {" ".join(options):10} {os.path.getsize(path):8} bytes  peak {peak:6.1f} MB'
          f'{"" if peak <= limit else ", ABOVE THE LIMIT"}{"" if whole else ", NOT RESTORED"}', flush=True)
    return peak <= limit and whole


class Server(http.server.BaseHTTPRequestHandler):
    """A llama.cpp server whose every answer is 12 MB of empty objects."""

    def do_GET(self):
        try:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"build_info":"b","a":[')
            for _ in range(400):
                self.wfile.write(b'{},' * 10000)
            self.wfile.write(b'{}]}')
        except OSError:
            pass  # the command has had enough

    def log_message(self, *arguments):
        pass


def check_server(kvarc, limit, folder):
    """What a server answers is refused within the limit, too."""
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f'http://127.0.0.1:{server.server_address[1]}'
    store = os.path.join(folder, 'store')
    status, peak = run(kvarc, 'session', 'save', '-q', '-M', '64M', 'x', '--server', url,
                       '--slot-folder', folder, '--store', store)
    server.shutdown()
    print(f'answer of a server  12000023 bytes  peak {peak:6.1f} MB'
          f'{"" if peak <= limit else ", ABOVE THE LIMIT"}{"" if status == 1 else ", NOT REFUSED"}')
    return status == 1 and peak <= limit


def main(kvarc, limit='80'):
    if kvarc == '--make':
        make(limit)
        return 0
    good = True
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, __file__, '--make', folder], check=True)
        for name in sorted(os.listdir(folder)):
            good = check(kvarc, float(limit), folder, name) and good
            if name.startswith('zip'):
                good = check(kvarc, float(limit), folder, name, '--members') and good
        good = check_server(kvarc, float(limit), folder) and good
    return 0 if good else 1


if __name__ == '__main__':
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
