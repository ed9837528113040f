# SPDX-License-Identifier: BSD-3-Clause
"""SASS as cuobjdump prints it: functions, loops, and paths through them."""
import collections
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
        self.target = [self._target(text, at) for text in self.text]

    @staticmethod
    def _target(text, at):
        m = re.search(r"0x([0-9a-f]+)\s*$", text)
        return at.get(int(m[1], 16)) if m and opcode(text) in BRANCHES else None

    def conditional(self, i):
        return self.text[i].startswith("@") or "UP" in self.text[i]

    def marks(self, first, last, mark):
        return sum(opcode(t).startswith(mark) for t in self.text[first:last + 1])

    def loops(self):
        """(first, last) of all loops: `last` branches back to `first`."""
        return [(j, i) for i, j in enumerate(self.target) if j is not None and j < i]

    def loop(self, mark, times):
        """The smallest loop in which an opcode is so often."""
        found = [(last - first, first, last) for first, last in self.loops()
                 if self.marks(first, last - 1, mark) >= times]
        return min(found)[1:] if found else None

    def usual_path(self, first, last):
        """Numbers of the instructions that run when every conditional forward branch is taken, as
        what these skip is rare."""
        path, i = [], first
        while i <= last:
            path.append(i)
            j = self.target[i] if self.conditional(i) else None
            i = j if j is not None and i < j <= last else i + 1
        return path
