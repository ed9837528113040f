#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A small S3 service in memory that does what S3 promises, and fails as networks do.

s3_faults.py [PROBABILITY [SEED]]: on a free port of the loopback; prints "ready PORT".

Puts with If-None-Match, deletes with If-Match, ETags, ranges, and lists with continuations are
as S3 has them. Of each request one in 1/PROBABILITY (0) fails: 500 before or behind the request,
a connection that is closed before it, in the middle of the answer, or behind the request (the
answer is lost), another range than was asked for, an answer that comes late or twice.
GET /_faults?p=PROBABILITY sets it; GET /_faults?weak=1 has puts ignore If-None-Match, as services
do that know no conditions. GET /_faults prints how many of each kind there were.
"""
import email.utils
import hashlib
import json
import random
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = 50  # keys of one answer to a list
LATE = .3  # seconds, at most
LATENCY = .01  # of a request that changes something, at most
KINDS = ('error before', 'error behind', 'closed', 'cut', 'lost answer', 'other range', 'late',
         'twice')
XML = '<?xml version="1.0" encoding="UTF-8"?>'


class Service:
    def __init__(self, probability, seed):
        self.objects, self.lock = {}, threading.Lock()  # key: (bytes, time, ETag)
        self.probability, self.weak = probability, False
        self.random, self.counts = random.Random(seed), dict.fromkeys(KINDS, 0)
        self.requests = 0

    def fault(self):
        with self.lock:
            self.requests += 1
            if self.random.random() >= self.probability:
                return None
            kind = self.random.choice(KINDS)
            self.counts[kind] += 1
            return kind

    def put(self, key, body, absent):
        etag = '"%s"' % hashlib.md5(body).hexdigest()
        with self.lock:
            if absent and not self.weak and key in self.objects:
                return 412, etag
            self.objects[key] = (body, time.time(), etag)
        return 200, etag

    def delete(self, key, match):
        with self.lock:
            there = self.objects.get(key)
            if match is not None:
                if there is None:
                    return 404
                if match not in ('*', there[2]):
                    return 412
            self.objects.pop(key, None)
        return 204

    def page(self, prefix, after):
        with self.lock:
            keys = sorted(k for k in self.objects if k.startswith(prefix) and k > after)
            return [(k,) + self.objects[k] for k in keys[:PAGE]], len(keys) > PAGE


class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    service = None

    def log_message(self, *_):
        pass

    def setup(self):
        super().setup()
        self.connection.settimeout(60)

    def close(self):
        self.close_connection = True
        try:
            self.connection.shutdown(2)
        except OSError:
            pass

    def answer(self, code, body=b'', headers=(), head_bytes=None):
        n = len(body) if head_bytes is None else head_bytes
        lines = [f'HTTP/1.1 {code} -', f'Content-Length: {n}']
        lines += [f'{name}: {value}' for name, value in headers]
        text = ('\r\n'.join(lines) + '\r\n\r\n').encode()
        text += body if head_bytes is None else b''
        if self.kind == 'error behind':
            text = b'HTTP/1.1 500 -\r\nContent-Length: 0\r\n\r\n'
        elif self.kind == 'late':
            time.sleep(random.uniform(0, LATE))
        elif self.kind == 'twice':
            text += text
        if self.kind == 'lost answer':
            return self.close()
        if self.kind == 'cut':
            self.wfile.write(text[:random.randrange(len(text))])
            return self.close()
        self.wfile.write(text)
        return None

    def error(self, code, name):
        self.answer(code, f'{XML}<Error><Code>{name}</Code></Error>'.encode())

    def begin(self):
        """The key of the request; None: it was answered."""
        parts = urllib.parse.urlsplit(self.path)
        self.query = urllib.parse.parse_qs(parts.query, keep_blank_values=True)
        self.kind = None
        if parts.path == '/_faults':
            self.control()
            return None
        self.kind = self.service.fault()
        if self.kind == 'closed':
            self.close()
            return None
        if self.kind == 'error before':
            self.kind = None
            self.error(500, 'InternalError')
            return None
        path = urllib.parse.unquote(parts.path)
        return path.split('/', 2)[2] if path.count('/') > 1 else ''

    def control(self):
        s = self.service
        if 'p' in self.query:
            s.probability = float(self.query['p'][0])
        if 'weak' in self.query:
            s.weak = self.query['weak'][0] == '1'
        self.answer(200, json.dumps(dict(s.counts, requests=s.requests)).encode() + b'\n')

    def do_PUT(self):
        length = int(self.headers.get('Content-Length', 0))
        if self.headers.get('Expect', '').lower() == '100-continue':
            self.wfile.write(b'HTTP/1.1 100 Continue\r\n\r\n')
        body = self.rfile.read(length)
        key = self.begin()
        if key is None or len(body) != length:
            return
        time.sleep(random.uniform(0, LATENCY))
        code, etag = self.service.put(key, body, self.headers.get('If-None-Match') == '*')
        if code == 412:
            self.error(412, 'PreconditionFailed')
        else:
            self.answer(200, headers=[('ETag', etag)])

    def do_DELETE(self):
        key = self.begin()
        if key is None:
            return
        time.sleep(random.uniform(0, LATENCY))
        code = self.service.delete(key, self.headers.get('If-Match'))
        if code == 412:
            self.error(412, 'PreconditionFailed')
        elif code == 404:
            self.error(404, 'NoSuchKey')
        else:
            self.answer(204)

    def do_HEAD(self):
        key = self.begin()
        if key is None:
            return
        there = self.service.objects.get(key)
        if there is None:
            self.answer(404, head_bytes=0)
        else:
            self.answer(200, headers=self.of(there), head_bytes=len(there[0]))

    @staticmethod
    def of(there):
        return [('Last-Modified', email.utils.formatdate(there[1], usegmt=True)),
                ('ETag', there[2])]

    def do_GET(self):
        key = self.begin()
        if key is None:
            return
        if 'list-type' in self.query:
            self.list()
            return
        there = self.service.objects.get(key)
        if there is None:
            self.error(404, 'NoSuchKey')
            return
        body, asked = there[0], self.headers.get('Range')
        if not asked:
            self.answer(200, body, self.of(there))
            return
        first, last = (int(n) for n in asked.split('=')[1].split('-'))
        if first >= len(body):
            self.error(416, 'InvalidRange')
            return
        last = min(last, len(body) - 1)
        if self.kind == 'other range':
            shift = min(first, 16)
            first, last = first - shift, last - shift
        self.answer(206, body[first:last + 1],
                    self.of(there) + [('Content-Range', f'bytes {first}-{last}/{len(body)}')])

    def list(self):
        prefix = self.query.get('prefix', [''])[0]
        found, more = self.service.page(prefix, self.query.get('continuation-token', [''])[0])
        text = f'{XML}<ListBucketResult><IsTruncated>{"true" if more else "false"}</IsTruncated>'
        if more:
            text += f'<NextContinuationToken>{found[-1][0]}</NextContinuationToken>'
        for key, body, when, etag in found:
            stamp = time.strftime('%Y-%m-%dT%H:%M:%S.000Z', time.gmtime(when))
            quoted = etag.replace('"', '&quot;')
            text += (f'<Contents><Key>{key}</Key><LastModified>{stamp}</LastModified>'
                     f'<ETag>{quoted}</ETag><Size>{len(body)}</Size></Contents>')
        self.answer(200, (text + '</ListBucketResult>').encode())


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        """A client that was killed."""


def main(probability='0', seed='1'):
    Handler.service = Service(float(probability), int(seed))
    server = Server(('127.0.0.1', 0), Handler)
    print('ready', server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == '__main__':
    main(*sys.argv[1:])
