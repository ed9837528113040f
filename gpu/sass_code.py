# SPDX-License-Identifier: BSD-3-Clause
"""SASS as cuobjdump prints it: functions, loops, and paths through them."""
import collections
import itertools
import re


# The last one leaves a loop, on sm_80 to 89.
BRANCHES = ("BRA", "BRA.U", "CALL.REL.NOINC")


def functions(path):
    """Instructions, (address, text), by function."""
    found, name = collections.defaultdict(list), None
    with open(path, encoding="utf-8") as f:
        for line in f:
            if "Function :" in line:
                name = line.split(":")[1].strip()
            m = re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?);", line)
            if name and m:
                found[name].append((int(m[1], 16), m[2].strip()))
    return found


def opcode(text):
    return re.sub(r"^@!?U?P\w+\s+", "", text).split()[0]


class Code:
    """The instructions of a function, by number, with the targets of their branches."""

    def __init__(self, instructions):
        at = {address: i for i, (address, _) in enumerate(instructions)}
        self.text = [text for _, text in instructions]
        self.opcode = [opcode(text) for text in self.text]
        self.target = [self._target(text, at) for text in self.text]

    @staticmethod
    def _target(text, at):
        m = re.search(r"0x([0-9a-f]+)\s*$", text)
        return at.get(int(m[1], 16)) if m and opcode(text) in BRANCHES else None

    def marks(self, mark):
        """Whether each instruction has an opcode; mark: a pattern."""
        return [bool(re.fullmatch(mark, code)) for code in self.opcode]

    def loops(self, mark, times):
        """(first, last) of loops, in which an opcode is so often, and which have no such loop in
        them; `last` branches back to `first`."""
        before = [0, *itertools.accumulate(self.marks(mark))]
        found = []
        for first, last in sorted(((j, i) for i, j in enumerate(self.target)
                                   if j is not None and j < i), key=lambda x: x[1] - x[0]):
            if before[last + 1] - before[first] >= times and not any(
                    f <= last and first <= end for f, end in found):
                found.append((first, last))
        return sorted(found)

    def shortest_path(self, first, last, mark, times):
        """Instructions of the shortest way through a loop on which an opcode is so often: what it
        leaves out, refills and escapes, is rare."""
        far, marks = last - first + 2, self.marks(mark)
        best = {last + 1: [(0, ())] + [(far, ())] * times}
        for i in range(last, first - 1, -1):
            more, target = marks[i], self.target[i]
            ways = [i + 1] if self.text[i].startswith("@") or target is None else []
            if target is not None and i < target <= last:
                ways.append(target)
            if i == last or self.opcode[i] in ("EXIT", "RET.REL.NODEC"):
                ways = [last + 1] if i == last else []
            best[i] = [min(((best[w][max(n - more, 0)][0] + 1, (w, max(n - more, 0)))
                            for w in ways), default=(far, ())) for n in range(times + 1)]
        path, i, n = [], first, times
        while i <= last and best[i][n][1]:
            path.append(self.text[i])
            i, n = best[i][n][1]
        return path if i == last + 1 else []
