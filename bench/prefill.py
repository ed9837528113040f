#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Speed of llama.cpp's prefill: prefill.py TEXTFILE [GGUF]

One thread; the first 4800 letters of the text, $ROUNDS times (3), fastest. The GGUF is
that of make_slots.py. Prints {"tokens", "seconds", "processor_seconds",
"sets"}: the last one says what instructions the build of llama.cpp has.
"""
import json
import os
import sys
import tempfile

import common as c
import make_slots


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding='utf-8') as f:
        text = f.read(make_slots.LETTERS)
    server, url = make_slots.serve(tempfile.gettempdir(), 1, *sys.argv[2:3])
    runs = []
    for _ in range(int(os.environ.get('ROUNDS', '3'))):
        answer, used = c.processor_timed(make_slots.prefill, url, text)
        t = answer['timings']
        runs.append((used, t['prompt_ms'] / 1e3, t['prompt_n']))
    used, wall, tokens = min(runs)
    import xllamacpp
    print(json.dumps({'tokens': tokens, 'seconds': wall,
                      'processor_seconds': used,
                      'sets': xllamacpp.get_system_info()}))
    sys.stdout.flush()
    os._exit(0)  # the server has threads that would wait


if __name__ == '__main__':
    main()
