#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""structure.py - how the sources hang together: structure.py BUILD [--circles] [--letters]
[--changes COMMITS] [--limits]

Prints, of the objects in a build folder and the sources they were made of (nm):
- internal symbols (kvi_) that another file needs, those that only files of their own folder need,
  and symbols with external linkage for 1,000 lines;
- circles of files: files that need each other's symbols, directly or through others;
- parameters whose names are one letter, but i, n, r, w and the handles of public calls;
- lines of the product, and of tests, fuzzers and the generators of vectors.
--circles names the files of each circle and the symbols that lead from one folder's files to each
other; --letters names the files with the most such parameters. --changes (as git log takes them:
SINCE..) counts how many of the sources a commit touches that changes 61 to 150 lines of them; moves
do not count. --limits fails where a number is above what the tree has reached."""
import argparse
import collections
import os
import re
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PRODUCT = 'src', 'predictors', 'include', 'gpu', 'python'
TESTS = 'tests', 'fuzz', 'spec/vectors'
LETTERS_ALLOWED = 'inrw'
LIMITS = {'shared': 1175, 'inside': 681, 'circles': 0, 'letters': 7}
# A list of parameters in a definition: a name in the first column or behind its type, then "{".
DEFINITION = re.compile(r'^[a-zA-Z_][\w *]*?\b(\w+)\(([^(){};]*(?:\([^()]*\)[^(){};]*)*)\)\s*\{', re.M)


def tracked(*folders):
    """Text files under version control."""
    names = subprocess.run(['git', '-C', TOP, 'ls-files', '-z', *folders], capture_output=True,
                           text=True, check=True).stdout.split('\0')
    return [name for name in names if name and os.path.isfile(os.path.join(TOP, name))]


def read(name):
    with open(os.path.join(TOP, name), encoding='utf-8', errors='replace') as f:
        return f.read()


def lines_of(names):
    return sum(read(name).count('\n') for name in names)


def folder_of(path):
    """As layers.txt has folders: two levels of src and predictors."""
    parts = path.split('/')
    return '/'.join(parts[:2]) if len(parts) > 2 else parts[0]


def objects(build):
    """The newest object file of each source; libtool keeps those of shared libraries in .libs."""
    newest = {}
    for top in 'src', 'predictors':
        for folder, _, names in os.walk(os.path.join(build, top)):
            for name in names:
                source = os.path.join(os.path.relpath(folder, build).replace('/.libs', ''),
                                      re.sub(r'^(lib\w+_la|kvarc)-', '', name)[:-2] + '.c')
                path = os.path.join(folder, name)
                if name.endswith('.o') and os.path.isfile(os.path.join(TOP, source)):
                    if source not in newest or os.path.getmtime(newest[source]) < os.path.getmtime(path):
                        newest[source] = path
    return sorted((path, source) for source, path in newest.items())


def symbols(build):
    """Where each symbol is defined, and what each source needs."""
    home, need = {}, collections.defaultdict(set)
    for path, source in objects(build):
        text = subprocess.run(['nm', '-P', '-g', path], capture_output=True, text=True,
                              check=True).stdout
        for line in text.splitlines():
            name, kind = line.split()[:2]
            if kind == 'U':
                need[source].add(name)
            else:
                home.setdefault(name, source)
    if not home:
        sys.exit('structure.py: no objects in %s' % build)
    return home, need


def circles(edges):
    """Strongly connected sets of more than one member (Tarjan)."""
    number, low, stack, found = {}, {}, [], []

    def visit(at):
        number[at] = low[at] = len(number)
        stack.append(at)
        for to in sorted(edges[at]):
            if to not in number:
                visit(to)
                low[at] = min(low[at], low[to])
            elif to in stack:
                low[at] = min(low[at], number[to])
        if low[at] == number[at]:
            members = stack[stack.index(at):]
            del stack[stack.index(at):]
            if len(members) > 1:
                found.append(sorted(members))

    sys.setrecursionlimit(10000)
    for at in sorted(edges):
        if at not in number:
            visit(at)
    return sorted(found, key=len, reverse=True)


def letters():
    """Parameters of definitions in the library and the command: all, and those of one letter."""
    count, short = 0, collections.Counter()
    for name in tracked('src', 'predictors'):
        if not name.endswith(('.c', '.h')):
            continue
        text = re.sub(r'/\*.*?\*/', '', read(name), flags=re.S)
        for found in DEFINITION.finditer(text):
            public = found.group(1).startswith('kvarc_')
            for place, parameter in enumerate(found.group(2).split(',')):
                last = re.search(r'(\w+)\s*(\[\w*\]\s*)*$', parameter.strip())
                if not last or parameter.strip() in ('void', '...'):
                    continue
                count += 1
                letter = last.group(1)
                if len(letter) == 1 and letter not in LETTERS_ALLOWED and not (
                        public and place == 0):
                    short[name] += 1
    return count, short


def changes(commits):
    """Files of src and predictors that commits touch which change 61 to 150 lines of them."""
    text = subprocess.run(['git', '-C', TOP, 'log', '--no-merges', '-M', '--numstat', '--format=@%h',
                           commits, '--', 'src', 'predictors'], capture_output=True, text=True,
                          check=True).stdout
    found = []
    for commit in text.split('@')[1:]:
        rows = [line.split('\t') for line in commit.split('\n')[1:] if line.count('\t') == 2]
        rows = [row for row in rows if row[2].rstrip('}').endswith(('.c', '.h')) and
                row[0] != '-' and int(row[0]) + int(row[1])]
        if 61 <= sum(int(row[0]) + int(row[1]) for row in rows) <= 150:
            found.append(len(rows))
    found.sort()
    if not found:
        return 'none of such a size'
    return 'median %d, mean %.1f (%d commits)' % (
        found[len(found) // 2], sum(found) / len(found), len(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('build')
    parser.add_argument('--circles', action='store_true')
    parser.add_argument('--letters', action='store_true')
    parser.add_argument('--changes')
    parser.add_argument('--limits', action='store_true')
    options = parser.parse_args()
    home, need = symbols(options.build)
    users = collections.defaultdict(set)
    edges = collections.defaultdict(set)
    for source, names in need.items():
        for name in names:
            if home.get(name, source) != source:
                users[name].add(source)
                edges[source].add(home[name])
    inner = {name for name in home if name.startswith('kvi_')}
    shared = [name for name in inner if users[name]]
    inside = [name for name in shared
              if all(folder_of(user) == folder_of(home[name]) for user in users[name])]
    sources = [name for name in tracked('src', 'predictors') if name.endswith('.c')]
    all_lines = lines_of(name for name in tracked('src', 'predictors')
                         if name.endswith(('.c', '.h')))
    print('internal symbols that files share: %d; never outside their folder: %d' % (
        len(shared), len(inside)))
    print('symbols with external linkage for 1,000 lines: %.1f (%d in %d lines)' % (
        1000 * len(home) / all_lines, len(home), all_lines))
    unused = sorted(name for name in inner if not users[name])
    print('internal symbols that no other file of the product needs: %d' % len(unused))
    found = circles(edges)
    print('circles of files: %d%s' % (len(found), ' (%s files)' % ', '.join(
        str(len(circle)) for circle in found) if found else ''))
    count, short = letters()
    print('parameters of one letter: %.1f %% (%d of %d)' % (
        100 * sum(short.values()) / count, sum(short.values()), count))
    print('files: %d .c; lines of the product: %d, of tests, fuzzers and vectors: %d' % (
        len(sources), lines_of(tracked(*PRODUCT)),
        lines_of(name for name in tracked(*TESTS)
                 if name.endswith(('.c', '.h', '.cc', '.py', '.sh', '.mk')))))
    if options.changes:
        print('files of a change of 61 to 150 lines: %s' % changes(options.changes))
    if options.limits:
        reached = {'shared': len(shared), 'inside': len(inside), 'circles': len(found),
                   'letters': 100 * sum(short.values()) / count}
        for name, most in LIMITS.items():
            if reached[name] > most:
                sys.exit('structure.py: %s: %.1f, where %d was reached before' % (
                    name, reached[name], most))
    if options.circles:
        print('not needed elsewhere: %s' % ' '.join(unused))
        for circle in found:
            print('\n%d: %s' % (len(circle), ' '.join(circle)))
            for source in circle:
                for name in sorted(need[source]):
                    if home.get(name) in circle and home[name] != source:
                        print('\t%s -> %s: %s' % (os.path.basename(source),
                                                  os.path.basename(home[name]), name))
    if options.letters:
        for name, n in short.most_common(40):
            print('%5d %s' % (n, name))


main()
