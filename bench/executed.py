#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""executed.py - how many sources one command executes: executed.py FOLDER [FILE]

Builds the tree in FOLDER with counters (gcc, gcov), packs FILE (the sample slot) at level 1 and
unpacks it, and prints for each: .c files of the tree with a function that was executed, and such
functions, those of headers left out."""
import json
import os
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run(*command, **options):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **options)


def data(folder):
    return [os.path.join(top, name) for top, _, names in os.walk(folder) for name in names
            if name.endswith('.gcda')]


def executed(folder):
    """Sources and functions that the counters name."""
    sources, functions = set(), set()
    for path in data(folder):
        text = subprocess.run(['gcov', '--json-format', '--stdout', path], cwd=folder,
                              capture_output=True, text=True, check=True).stdout
        for line in text.splitlines():
            for entry in json.loads(line)['files'] if line.startswith('{') else ():
                if not entry['file'].endswith('.c') or '/usr/' in entry['file']:
                    continue
                for function in entry['functions']:
                    if function['execution_count']:
                        sources.add(os.path.basename(entry['file']))
                        functions.add((entry['file'], function['name']))
    return sources, functions


def main():
    folder = os.path.abspath(sys.argv[1])
    sample = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else os.path.join(
        TOP, 'tests/data/sample/smollm2-135m-f16-160.slot'))
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(os.path.join(folder, 'Makefile')):
        run(os.path.join(TOP, 'configure'), '-q', '--disable-shared', 'CFLAGS=-O0 --coverage',
            cwd=folder)
    run('make', '-s', '-j%d' % (os.cpu_count() or 1), 'kvarc', cwd=folder)
    archive, back = os.path.join(folder, 'sample.kva'), os.path.join(folder, 'sample.back')
    for verb, command in (('pack -1', ('pack', '-1', '-q', '-f', '-o', archive, sample)),
                          ('unpack', ('unpack', '-q', '-f', '-o', back, archive))):
        for path in data(folder):
            os.remove(path)
        run(os.path.join(folder, 'kvarc'), *command)
        sources, functions = executed(folder)
        print('kvarc %s: %d .c files, %d functions' % (verb, len(sources), len(functions)))


main()
