# SPDX-License-Identifier: BSD-3-Clause
"""README.md as readme.py reads it: cells of its table, numbers in its text, commands, links."""
import os
import re
import sys

# A ratio, a size, a share or a speed.
NUMBER = re.compile(r'\b\d[\d.,]*(x\b| ?(?:[kMGT]?B\b|%|[MG]B/s))')
LINES_MOST, QUICKSTART_LINE = 110, 15


def row_name(cell):
    """What a row of the table is called: its first words."""
    return re.match(r'[^(:*]*', cell).group(0).strip()


class Page:
    def __init__(self, path, top):
        with open(path, encoding='utf-8') as f:
            self.text = f.read()
        self.top, self.wrong, self.skipped = top, [], 0
        self.measured = [] # spans of the text
        self.cells = {} # (row, column): span
        columns, at = None, 0
        for line in self.text.splitlines(keepends=True):
            if line.startswith('|'):
                spans = [m.span(1) for m in re.finditer(r'\|([^|\n]*)(?=\|)', line)]
                cells = [line[a:b].strip(' *') for a, b in spans]
                columns = columns or cells
                for column, (a, b) in zip(columns[1:], spans[1:]):
                    self.cells[row_name(cells[0]), column] = (at + a, at + b)
            else:
                columns = None
            at += len(line)

    def report(self, word, what, text):
        print('%-8s %-44s %s' % (word, what, text))

    def fail(self, what, text):
        self.wrong.append(what)
        self.report('WRONG', what, text)

    def judge(self, what, said, measured, good):
        if good:
            self.report('ok', what, '%s, measured %s' % (said, measured))
        else:
            self.fail(what, 'README says %s, measured %s' % (said or 'nothing', measured))

    def compare(self, what, said, measured):
        self.judge(what, said, measured, said == measured)

    def skip(self, what, why):
        self.skipped += 1
        self.report('skipped', what, why)

    def said(self, row, column):
        """What a cell says; '' when there is none."""
        span = self.cells.get((row, column))
        if not span:
            return ''
        self.measured.append(span)
        return self.text[slice(*span)].strip(' *')

    def cell(self, row, column, measured):
        self.compare('%s, %s' % (row, column), self.said(row, column), measured)

    def skip_row(self, row, why):
        """Cells of this row that were not measured count as if they were."""
        rest = [span for (name, _), span in self.cells.items()
                if name == row and span not in self.measured and self.text[slice(*span)].strip()]
        self.measured += rest
        if rest:
            self.skip('%s, %d cells' % (row, len(rest)), why)

    def find(self, pattern, n):
        """The n groups of the pattern, in which a space is any white space."""
        m = re.search(pattern.replace(' ', r'\s+'), self.text)
        if not m:
            self.fail('text', 'README does not say: ' + pattern)
            return [''] * n
        self.measured += [m.span(i + 1) for i in range(n)]
        return list(m.groups())

    def blocks(self):
        return re.findall(r'^```\w*\n(.*?)^```', self.text, re.M | re.S)

    def check_commands(self, kvarc):
        """Verbs and options of the commands shown are those that the command has."""
        text = '\n'.join(self.blocks() + re.findall(r'`(kvarc [^`]*)`', self.text))
        n = 0
        for verb, rest in re.findall(r'\bkvarc ([a-z]+)([^\n#|;&\']*)', text):
            usage = kvarc('help', verb)
            for option in re.findall(r'(?<=\s)(--[a-z-]+|-[a-z])\b', rest):
                n += 1
                if not re.search(re.escape(option) + r'\b', usage):
                    self.fail('commands', 'kvarc %s has no %s' % (verb, option))
        self.judge('options in commands', 'many', n, n > 8)

    def check_links(self):
        """What README links to is there, and it is short, with the developer's commands on top."""
        links = [x for x in re.findall(r'\]\(([^)#]+)', self.text) if '://' not in x]
        for x in links:
            if not os.path.exists(os.path.join(self.top, x)):
                self.fail('links', 'no ' + x)
        self.judge('links', 'many', len(links), len(links) > 15)
        lines = self.text.splitlines()
        self.judge('lines', 'at most %d' % LINES_MOST, len(lines), len(lines) <= LINES_MOST)
        top = '\n'.join(lines[:QUICKSTART_LINE])
        self.judge('./quickstart demo and check', 'in the first lines', QUICKSTART_LINE,
                   './quickstart demo' in top and './quickstart check' in top)

    def finish(self):
        """Ends the script."""
        plain = re.sub(r'^```.*?^```', lambda m: re.sub(r'\d', '-', m.group(0)), self.text,
                       flags=re.M | re.S)
        for m in NUMBER.finditer(plain):
            if not any(a <= m.start() < b for a, b in self.measured):
                self.fail('text', 'nothing measures "%s" of README' % m.group(0))
        print('%d wrong, %d skipped' % (len(self.wrong), self.skipped))
        sys.exit(1 if self.wrong else 0)
