#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the loops of the AVX-512 kernels of level 1 ask of a processor, next to their speed.

port_limits.py BUILD [CPU]; CPU: a model of llvm-mca, znver4. Needs binutils and llvm-mca
from LLVM 16 on ($LLVM_MCA). BUILD is where the library and bench/kernels were built.

A loop is the shortest one of a kernel with many vectors, on its usual path. llvm-mca counts its
instructions by execution port and simulates it without misses of caches and of branch
prediction, and without the microcode of gathers. Everything is for a step of 32 elements. The
last column is what bench/kernels measures on this machine, where it has that kernel.
"""
import os
import re
import subprocess
import sys

STEP = 32
VECTORS = 30 # a loop with fewer is not that of the steps
# symbol, elements of a pass, and the row and the word of bench/kernels
LOOPS = (('grid_decode2', 64, 'grid bf16 per element', 'two', 'decode'),
         ('grid_encode2', 64, 'grid bf16 per element', 'two', 'encode'),
         ('rotated_tokens', 32, 'rotated contexts, 32 tokens', '', 'tokens'))


def run(*command):
    return subprocess.run(command, check=True, capture_output=True,
                          text=True).stdout


def functions(library, name):
    for line in run('nm', '-S', library).splitlines():
        part = line.split()
        if len(part) == 4 and part[3] == name:
            yield int(part[0], 16), int(part[1], 16)


def instructions(library, start, size):
    out = run('objdump', '-d', '--no-show-raw-insn',
              '--start-address=%d' % start, '--stop-address=%d' % (start + size),
              library)
    found = re.findall(r'^\s*([0-9a-f]+):\t([^#\n]*)', out, re.M)
    return [(int(at, 16), text.strip()) for at, text in found]


def hot_loop(code):
    """The shortest loop with many vectors, and no jump out of its middle that is always taken."""
    place = {at: i for i, (at, _) in enumerate(code)}
    ends = []
    for i, (_, text) in enumerate(code):
        jump = re.match(r'j\w+\s+([0-9a-f]+) ', text + ' ')
        first = place.get(int(jump[1], 16), i + 1) if jump else i + 1
        if first <= i:
            ends.append((i - first, first, i))
    for _, first, last in sorted(ends):
        body = [text for _, text in code[first:last + 1]]
        if (sum('zmm' in text for text in body) >= VECTORS and
                not any(text.startswith('jmp') for text in body[:-1])):
            return body
    return None


def simulated(body, cpu):
    """Cycles of a pass: the busiest port's, and all."""
    text = '\n'.join(re.sub(r'^(j\w+)\s.*', r'\1 1f', t) for t in body)
    out = subprocess.run(
        [os.environ.get('LLVM_MCA', 'llvm-mca-16'), '-mcpu=' + cpu, '-iterations=100'],
        input=text + '\n1:\n', check=True, capture_output=True, text=True).stdout
    ports = out.split('Resource pressure per iteration:')[1].splitlines()[2]
    busiest = max(float(p) for p in ports.split() if p != '-')
    return busiest, int(re.search(r'Total Cycles:\s+(\d+)', out)[1]) / 100


def measured(kernels):
    """Cycles of a step by row, by the clock that bench/kernels finds."""
    out = run(kernels, 'avx512')
    hertz = float(re.search(r'clock ([0-9.]+) GHz', out)[1]) * 1e9

    def cycles(row, two, word):
        for line in out.splitlines():
            if row in line and two in line:
                rate = re.search((word or 'contexts') + r'\s+([0-9.]+)', line)
                if rate:
                    return 2 * STEP * hertz / (float(rate[1]) * 1e9)
        return None
    return hertz, cycles


def main():
    build, cpu = sys.argv[1], (sys.argv + ['znver4'])[2]
    library = os.path.join(build, '.libs', 'libkvarc.so')
    hertz, cycles = measured(os.path.join(build, 'bench', 'kernels'))
    print('# cycles of 32 elements; model %s, measured at %.2f GHz' % (cpu, hertz / 1e9))
    print('%-18s %12s %13s %10s %9s' % ('loop', 'instructions', 'busiest port', 'simulated',
                                       'measured'))
    for name, elements, *row in LOOPS:
        loops = [hot_loop(instructions(library, *f)) for f in functions(library, name)]
        body = next((b for b in loops if b), None)
        if not body:
            print('%-18s not in this library' % name)
            continue
        port, all_cycles = (c * STEP / elements for c in simulated(body, cpu))
        found = cycles(*row)
        print('%-18s %12.1f %13.1f %10.1f %9s' % (
            name, len(body) * STEP / elements, port, all_cycles,
            '%.1f' % found if found else '-'))


if __name__ == '__main__':
    main()
