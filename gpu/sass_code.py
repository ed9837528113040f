# SPDX-License-Identifier: BSD-3-Clause
"""SASS as cuobjdump prints it: functions, loops, and paths through them."""
import collections
import heapq
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


def is_mark(text, mark):
    """Whether an instruction is counted: its opcode begins so, or is the one behind "="."""
    return opcode(text) == mark[1:] if mark[0] == "=" else opcode(text).startswith(mark)


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
        return sum(is_mark(t, mark) for t in self.text[first:last + 1])

    def loops(self):
        """(first, last) of all loops: `last` branches back to `first`."""
        return [(j, i) for i, j in enumerate(self.target) if j is not None and j < i]

    def loop(self, mark, times):
        """The smallest loop in which an opcode is so often."""
        found = [(last - first, first, last) for first, last in self.loops()
                 if self.marks(first, last - 1, mark) >= times]
        return min(found)[1:] if found else None

    def usual_path(self, first, last):
        """(path, skipped): numbers of the instructions that run when every conditional forward
        branch is taken, as what these skip is rare; and (first, last) of what they skip."""
        path, skipped, i = [], [], first
        while i <= last:
            path.append(i)
            j = self.target[i] if self.conditional(i) else None
            taken = j is not None and i < j <= last
            if taken:
                skipped.append((i + 1, j - 1))
            i = j if taken else i + 1
        return path, skipped

    def shortest_path(self, first, last, wanted):
        """Numbers of the instructions of the shortest path from `first` to `last` that has each
        opcode of `wanted` as often as it says; None: there is none."""
        marks = list(wanted.items())
        most = tuple(n for _, n in marks)

        def seen(i, counts):
            return tuple(min(n + is_mark(self.text[i], mark), limit)
                         for n, (mark, limit) in zip(counts, marks))

        start = (first, seen(first, (0,) * len(marks)))
        queue, before = [(1, start)], {start: None}
        while queue:
            length, state = heapq.heappop(queue)
            i, counts = state
            if i == last and counts == most:
                path = []
                while state:
                    path.append(state[0])
                    state = before[state]
                return path[::-1]
            following = []
            if self.target[i] is None or self.conditional(i):
                following.append(i + 1)
            if self.target[i] is not None:
                following.append(self.target[i])
            for j in following:
                if not first <= j <= last:
                    continue
                state_j = (j, seen(j, counts))
                if state_j not in before:
                    before[state_j] = state
                    heapq.heappush(queue, (length + 1, state_j))
        return None
