#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A llama.cpp server until it is killed, with the options that docs name.

serve.py -m MODEL.gguf --slot-save-path FOLDER --port PORT

Listens on loopback only; ends after 5 minutes by itself.
"""
import argparse
import os
import time


def main():
    import xllamacpp as x
    parser = argparse.ArgumentParser()
    parser.add_argument('-m', dest='model', required=True)
    parser.add_argument('--slot-save-path', required=True)
    parser.add_argument('--port', type=int, required=True)
    options = parser.parse_args()
    p = x.CommonParams()
    p.model.path = options.model
    p.port = options.port
    p.n_ctx, p.n_parallel, p.n_predict, p.warmup = 2048, 1, 1, False
    p.slot_save_path = os.path.join(os.path.abspath(options.slot_save_path), '')
    p.endpoint_slots = True
    p.cpuparams.n_threads = 2
    server = x.Server(p)
    print(server.listening_address, flush=True)
    time.sleep(300)
    os._exit(0)


if __name__ == '__main__':
    main()
