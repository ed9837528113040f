#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Deduplication and eviction in a store of sessions, on a synthetic trace of agents.

dedup_policies.py [SEEDS [SESSIONS]]

The trace is made up, not recorded: a few system prompts and projects, chosen by a Zipf law,
sessions of one turn or of 5 to 60 that grow, tools that return files of the project, retries,
edits of an earlier turn, forks, pauses of hours and days. One prompt carries the date. Each
request asks for its whole prompt, and its prompt and answer are saved. An engine keeps the
session itself for ENGINE seconds: requests within are not asked of the store.

First what the saved files take, by kind of deduplication. Then how many tokens are computed
again because they were evicted, over the tokens asked for, by policy and by budget, a share
of what the store would take without a budget. What is evicted are pieces of up to PIECE
tokens that no stored piece continues. The cost of a token grows with its position, by half
at COST_POSITION / 2. Rows: the mean of the seeds, their least and most.
"""
import bisect
import heapq
import math
import sys

import numpy as np

HOUR, DAY = 3600., 86400.
DAYS, ENGINE, PIECE, BLOCK = 10, 600., 512, 256
COST_POSITION = 30000.  # attention costs there as much as the rest of a model of 8 billion
PROMPTS, PROJECTS, FILES, ZIPF = 6, 24, 40, 1.
BUDGETS = (.05, .1, .2, .4)
TOKEN_BYTES, PACKED = 131072, 10.16 / 16    # 8 KV heads of 128, 32 layers; level 1


class Spans:
    """Runs of tokens: each begins at one place of one parent. What they say (text) can
    be behind several parents."""
    def __init__(self):
        self.length, self.parent, self.text, self.known = [], [], [], {}

    def new(self, path, length, text=None):
        """path and this span; the same span when the text was there before."""
        at = path[-1] if path else None
        if text is not None and (at, text) in self.known:
            span = self.known[at, text]
        else:
            span = len(self.length)
            self.length.append(int(length))
            self.parent.append(at)
            self.text.append(('own', span) if text is None else text)
            if text is not None:
                self.known[at, text] = span
        return path + ((span, self.length[span]),)


class Trace:
    """requests: (time, prompt, prompt and answer, whether the engine has the session)."""
    def __init__(self, seed, sessions, once=.35, returns=.06, engine=ENGINE):
        self.rng = np.random.default_rng(seed)
        self.once, self.returns, self.engine = once, returns, engine
        self.spans, self.requests = Spans(), []
        r = self.rng
        self.prompt_tokens = r.integers(2000, 8000, PROMPTS)
        self.project_tokens = r.integers(500, 6000, PROJECTS)
        self.file_tokens = np.minimum(r.lognormal(7, 1, (PROJECTS, FILES)), 12000)
        self.counts = dict.fromkeys(('sessions', 'one turn', 'retries', 'edits', 'forks',
                                     'returns'), 0)
        for start in np.sort(r.uniform(0, DAYS * DAY, sessions)):
            self.session(start)
        self.requests.sort(key=lambda q: q[0])

    def zipf(self, n):
        p = 1. / np.arange(1, n + 1) ** ZIPF
        return int(self.rng.choice(n, p=p / p.sum()))

    def session(self, start):
        prompt, project = self.zipf(PROMPTS), self.zipf(PROJECTS)
        new = self.spans.new
        path = new((), 300, ('prompt', prompt))
        day = ('date', int(start // DAY)) if prompt == 1 else ('date',)
        path = new(path, 20, day)
        path = new(path, self.prompt_tokens[prompt] - 320, ('tools', prompt))
        path = new(path, self.project_tokens[project], ('project', project))
        once = self.rng.random() < self.once
        turns = int(self.rng.integers(1, 3) if once else
                    round(math.exp(self.rng.uniform(math.log(5), math.log(60)))))
        self.counts['sessions'] += 1
        self.counts['one turn'] += once
        self.turns(start, path, turns, project, [])

    def pause(self):
        """Seconds to the next request: a tool, a person, or a return."""
        kind = self.rng.random()
        if kind < self.returns:
            self.counts['returns'] += 1
            return self.rng.lognormal(math.log(8 * HOUR), 1.2)
        return self.rng.lognormal(math.log(150 if kind < .35 else 15), 1)

    def said(self, path, project):
        """A file of the project that a tool read, or words of a user or a tool."""
        if self.rng.random() < .3:
            f = self.zipf(FILES)
            path = self.spans.new(path, 40)
            return self.spans.new(path, self.file_tokens[project][f], ('file', project, f))
        return self.spans.new(path, max(10, self.rng.lognormal(5.7, 1)))

    def turns(self, time, path, n, project, history):
        last = -DAY
        for left in range(n, 0, -1):
            what = self.rng.random()
            if what < .03 and len(history) > 2:
                path = self.edit(history)
                self.counts['edits'] += 1
            elif what < .05 and left > 4:
                self.counts['forks'] += 1
                self.turns(time + 5, path, left // 3, project, list(history))
            prompt = self.said(path, project)
            retries = self.rng.random() < .04
            self.counts['retries'] += retries
            for _ in range(1 + retries):
                path = self.spans.new(prompt, max(5, self.rng.lognormal(5.3, .8)))
                self.requests.append((time, prompt, path, time - last < self.engine))
                last = time
                time += 5 + self.pause()
            history.append((prompt, path))

    def edit(self, history):
        """Back to one of the last turns, whose words are changed in the middle."""
        back = int(self.rng.integers(2, min(len(history), 12) + 1))
        prompt = history[-back][0]
        del history[-back:]
        span, used = prompt[-1]
        return prompt[:-1] + ((span, max(1, used // 2)),)


# ----- what files take ----------------------------------------------------

def tokens_of(path):
    return sum(used for _, used in path)


class Stored:
    """Tokens that kinds of deduplication store for all saved files."""
    def __init__(self, trace):
        self.trace = trace
        saves = [q[2] for q in trace.requests]
        ends = set(saves)
        for path in saves:                  # what a later file of the session continues
            ends.difference_update(path[:k] for k in range(1, len(path)))
        self.rows = (
            ('each file', sum(map(tokens_of, saves))),
            ('whole files', sum(map(tokens_of, set(saves)))),
            ('whole files, last of a session', sum(map(tokens_of, ends))),
            ('blocks of %d by chain hash' % BLOCK, self.blocks(saves)),
            ('segments by chain hash, not cut', self.segments(saves)),
            ('segments cut at the token, as a token trie', self.trie(saves)))
        self.again = self.near(saves)

    def blocks(self, saves):
        """Full blocks by what precedes them; the last tokens of each file are its own."""
        seen, total = set(), 0
        for path in set(saves):
            n = tokens_of(path)
            total += n % BLOCK
            end, i = 0, 0
            for span, used in path:
                end += used
                while (i + 1) * BLOCK <= end:
                    i += 1
                    if (span, i) not in seen:       # a span has one place of one parent
                        seen.add((span, i))
                        total += BLOCK
        return total

    def segments(self, saves):
        """Each save ends a segment; a file shares segments that are in it as a whole."""
        ends, total = set(), 0
        for path in saves:
            at = 0
            for k in range(len(path), 0, -1):
                if path[:k] in ends:
                    at = k
                    break
            total += tokens_of(path[at:])
            ends.add(path)
        return total

    def trie(self, saves):
        """When each file shares its longest prefix that any other one has."""
        stored = {}
        for path in saves:
            for span, used in path:
                stored[span] = max(used, stored.get(span, 0))
        return sum(stored.values())

    def near(self, saves):
        """Tokens of the trie whose text the store had already behind another prefix: prompts
        and projects behind the same prompt of another day, and all others."""
        texts, spans, close, far = set(), set(), 0, 0
        for path in saves:
            prompt = self.trace.spans.text[path[0][0]]
            for span, used in path:
                if span in spans:
                    continue
                spans.add(span)
                text = self.trace.spans.text[span]
                if text[0] in ('tools', 'project') and (text, prompt) in texts:
                    close += used
                elif text in texts:
                    far += used
                texts.update((text, (text, prompt)))
        return close, far


# ----- what is evicted ----------------------------------------------------

class Piece:
    """Up to PIECE tokens of a span; stored while all before it are."""
    __slots__ = ('parent', 'tokens', 'cost', 'bits', 'kids', 'stored', 'ever', 'last', 'count',
                 'level', 'score', 'chance', 'uses', 'version')

    def __init__(self, parent, at, tokens, bits):
        self.parent, self.tokens = parent, tokens
        self.cost = 1 + (at + tokens / 2) / COST_POSITION   # a token, and so a byte
        self.bits = bits                    # that a model would need for all up to here
        self.kids = self.version = 0
        self.stored = self.ever = False
        self.last = self.count = self.level = self.chance = 0.
        self.score = -math.inf              # log2 of fading hits, as of time 0
        self.uses = []


def pieces_of(trace):
    """The trace by pieces: (time, of the prompt, of prompt and answer, asked tokens, held)."""
    made, rng, out = {}, np.random.default_rng(1), []

    def pieces(path):
        row, at, parent = [], 0, None
        for span, used in path:
            for i in range(-(-used // PIECE)):
                if (span, i) not in made:
                    n = min(PIECE, trace.spans.length[span] - i * PIECE)
                    bits = n * rng.gamma(4, .6) + (parent.bits if parent else 0)
                    made[span, i] = Piece(parent, at + i * PIECE, n, bits)
                parent = made[span, i]
                row.append(parent)
            at += used
        return row

    for i, (time, prompt, both, held) in enumerate(trace.requests):
        row = pieces(prompt)
        if not held:
            for p in row:
                p.uses.append(i)
        out.append((time, row, pieces(both), held))
    return out


class Policy:
    """What goes first: the least value. touch: a request has passed."""
    survives = False                        # counts of pieces that are no longer stored

    def __init__(self, store):
        self.store = store

    def touch(self, p, time, i):
        if not (p.stored or self.survives):
            p.count = 0
        p.count += 1
        p.last = time

    def value(self, p):
        return p.last


class Hits(Policy):
    def value(self, p):
        return p.count * p.cost


class GreedyDual(Hits):
    """GDSF: hits x cost / bytes, from the value of what went last."""
    def touch(self, p, time, i):
        super().touch(p, time, i)
        p.level = self.store.evicted + p.count * p.cost

    def value(self, p):
        return p.level


class Branches(Policy):
    """The chance that a sequence passes here, by the branch counts of the trie, with one
    count of each branch for what is new, x cost / bytes."""
    survives = True

    def touch(self, p, time, i):
        super().touch(p, time, i)
        up = p.parent
        p.chance = (up.chance + math.log2(p.count / (up.count + 1)) if up else
                    math.log2(p.count / (i + 2)))

    def value(self, p):
        up = p.parent
        return p.chance + math.log2(p.cost) if up else math.inf


class Fading(Policy):
    """The same of counts that halve in `half` seconds: products of branches are hits."""
    survives, half = True, DAY

    def touch(self, p, time, i):
        super().touch(p, time, i)
        p.score = float(np.logaddexp2(p.score, time / self.half))

    def value(self, p):
        return p.score + math.log2(p.cost)


class FadingFast(Fading):
    half = 2 * HOUR


class ModelChance(Policy):
    """A model's own probability of the tokens, x cost / bytes."""
    def value(self, p):
        return -p.bits + math.log2(p.cost)


class Oracle(Policy):
    """Belady: the next use that is farthest goes first."""
    def value(self, p):
        k = bisect.bisect_right(p.uses, self.store.now)
        return -p.uses[k] if k < len(p.uses) else -math.inf




class Store:
    def __init__(self, policy, budget):
        self.budget, self.used, self.evicted, self.now = budget, 0, 0., 0
        self.policy, self.heap, self.serial = policy(self), [], 0
        self.asked = self.again = self.again_cost = self.asked_cost = 0

    def offer(self, p):
        """A stored piece that nothing continues may go."""
        self.serial += 1
        p.version = self.serial
        heapq.heappush(self.heap, (self.policy.value(p), self.serial, p))

    def look_up(self, row):
        missing = False
        for p in row:
            missing |= not p.stored
            self.asked += p.tokens
            self.asked_cost += p.tokens * p.cost
            if missing and p.ever:
                self.again += p.tokens
                self.again_cost += p.tokens * p.cost

    def save(self, row, time, i):
        for p in row:
            self.policy.touch(p, time, i)
            if not p.stored:
                p.stored = p.ever = True
                self.used += p.tokens
                if p.parent:
                    p.parent.kids += 1
        for p in row:
            if not p.kids:
                self.offer(p)

    def evict(self):
        while self.used > self.budget:
            value, serial, p = heapq.heappop(self.heap)
            if not p.stored or p.kids or serial != p.version:
                continue
            p.stored = False
            self.used -= p.tokens
            self.evicted = max(self.evicted, value)
            if p.parent:
                p.parent.kids -= 1
                if not p.parent.kids:
                    self.offer(p.parent)


class Versions(Store):
    """What `store gc` does: the version that was used least recently goes, and with it the
    pieces that no other version needs."""
    def save(self, row, time, i):
        super().save(row, time, i)
        used = [p for p in row[:-1] if p.version][-1:]
        for p in used + row[-1:]:
            p.version = time + 1
            heapq.heappush(self.heap, (p.version, i, id(p), p))

    def offer(self, p):
        pass

    def evict(self):
        while self.used > self.budget:
            time, _, _, p = heapq.heappop(self.heap)
            if p.version != time:
                continue
            p.version = 0
            while p and not p.kids and not p.version:
                p.stored = False
                self.used -= p.tokens
                p = p.parent
                if p:
                    p.kids -= 1


POLICIES = (('LRU, whole versions', Versions, Policy), ('LRU', Store, Policy),
            ('hits x cost / bytes', Store, Hits), ('GDSF', Store, GreedyDual),
            ('trie, branch counts', Store, Branches),
            ('trie, counts halve in a day', Store, Fading),
            ('trie, counts halve in 2 h', Store, FadingFast),
            ('trie, chance by a model', Store, ModelChance), ('oracle', Store, Oracle))


def run(trace, store, policy, budget):
    """Shares of tokens, and of their cost, that are computed again."""
    rows = pieces_of(trace)
    s = store(policy, budget)
    for s.now, (time, prompt, both, held) in enumerate(rows):
        if not held:
            s.look_up(prompt)
        s.save(both, time, s.now)
        s.evict()
    return s.again / s.asked, s.again_cost / s.asked_cost


VARIANTS = (('the trace', {}), ('most sessions have one turn', {'once': .8}),
            ('twice the returns', {'returns': .12}), ('no returns', {'returns': 0}),
            ('nothing stays in the engine', {'engine': 0}))


# ----- tables -------------------------------------------------------------

def shown(values, scale=100):
    v = np.array(values) * scale
    return '%6.2f (%5.2f %5.2f)' % (v.mean(), v.min(), v.max())


def dedup_table(stored):
    for i, (name, _) in enumerate(stored[0].rows):
        tokens = np.array([s.rows[i][1] for s in stored])
        least = np.array([s.rows[-1][1] for s in stored])
        print('%-46s %s x, %7.1f GB' % (name, shown(tokens / least, 1),
                                        tokens.mean() * TOKEN_BYTES * PACKED / 1e9))
    for i, what in enumerate(('a prompt of another day', 'another prefix')):
        print('of the last row, text stored before behind %s: %s %%' %
              (what, shown([s.again[i] / s.rows[-1][1] for s in stored])), flush=True)


def eviction_table(traces, stored, costs):
    totals = [s.rows[-1][1] for s in stored]
    print('%-26s %s' % ('computed again, %', '  '.join('%18.0f %%' % (100 * b)
                                                       for b in BUDGETS)))
    for name, *how in POLICIES:
        by = [[run(t, *how, b * n) for t, n in zip(traces, totals)] for b in BUDGETS]
        for k, what in enumerate(('', '  by cost')[:1 + costs]):
            print('%-26s %s' % (name if not k else what,
                                '  '.join(shown([r[k] for r in rows]) for rows in by)),
                  flush=True)


def main():
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    sessions = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    for name, options in VARIANTS:
        traces = [Trace(seed, sessions, **options) for seed in range(1, seeds + 1)]
        print('# %s' % name)
        for seed, t in enumerate(traces, 1):
            asked = [q for q in t.requests if not q[3]]
            print('# seed %d: %s, %d requests, %d asked of the store, %.1f k tokens each' %
                  (seed, ', '.join('%d %s' % (n, what) for what, n in t.counts.items()),
                   len(t.requests), len(asked),
                   sum(tokens_of(q[1]) for q in asked) / len(asked) / 1e3))
        stored = [Stored(t) for t in traces]
        if not options:
            dedup_table(stored)
        eviction_table(traces, stored, not options)


if __name__ == '__main__':
    main()
