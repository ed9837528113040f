#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""run.py - puts small faults into a copy of the source and looks whether a quick test fails

usage: run.py [--work FOLDER] [--jobs N] [--part I/N] [--least N] [--list] [NAME|FOLDER/...]

A mutant is one block of list.txt:

    name: gc-budget-order
    file: src/store/store_gc.c
    function: least_recently_used
    old: return x->used < y->used ? -1 : 1;
    new: return x->used < y->used ? 1 : -1;
    tests: tests/unit/test_store_damage cli:cut,append

old is a text inside one line of the function, and occurs in it once: a mutant for which this does
not hold, or which does not compile, is stale, which is an error and no pass. A test is a program or
a script of make check, or named cases of tests/cli/run.sh or of tests/vectors.sh. Each test runs
without a mutant first, and must pass there. Then each mutant in turn, by folder: what its tests
need is built, they run until one fails, and the file is restored. A test that takes five times as
long has failed.

--list: only whether each fits the source. --work: where the copies are, which another run uses
again (build/mutants); MUTANTS_CFLAGS: flags of their compiler (-O1). --jobs: copies of the tree
that work at the same time (1). --part: the Ith of N parts of the list. --least: how many must be
caught (all). The last line is "mutants: N caught, M survived, K stale"; exit status 1: fewer than
that, or one is stale.
"""
import argparse
import filecmp
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
FIELDS = ("name", "file", "function", "old", "new", "tests")
BUILD_SECONDS = 1200
LEAST_SECONDS = 20  # of a test that is quick: the machine may be loaded
OUTPUT_LINES = 15
# Scripts that run the named ones of their cases.
RUNS = {"cli": "tests/cli/run.sh", "vectors": "tests/vectors.sh"}
# What tests need beside themselves.
NEEDS = {
    "tests/unit/test_device": ["tests/device/driver_stand_in.la"],
    "tests/crash/faults.sh": ["tests/crash/file_calls.la", "kvarc"],
    "tests/crash/states.sh": ["tests/crash/crash_states", "tests/crash/store_states"],
    "tests/store_laws.sh": ["kvarc"],
    "tests/gpu/races.sh": ["tests/gpu/check_races", "tests/gpu/check_engine_races",
                           "tests/gpu/check_plans", "tests/device/driver_races.la",
                           "tests/reference/generate", "kvarc"],
    "tests/vectors.sh": ["tests/reference/digest", "kvarc"],
    "tests/reference/misreadings.sh": ["tests/reference/digest", "kvarc"],
    "tests/cli/run.sh": ["kvarc", "tests/cli/make_named", "tests/cli/make_session",
                         "tests/cli/change_source.la", "tests/cli/see_verify",
                         "tests/cli/map_while"],
}
CONFIGURE = ["--disable-static"]  # some tests preload a module


class Stale(Exception):
    """A mutant that is none."""


class Failed(Exception):
    """The tree does not build without a mutant."""


def read_list(path):
    mutants = []
    with open(path, encoding="utf-8") as lines:
        text = "".join(line for line in lines if not line.startswith("#"))
    for block in re.split(r"\n\s*\n", text.strip()):
        mutant = {}
        for line in block.splitlines():
            key, _, value = line.partition(":")
            if key not in FIELDS or key in mutant:
                sys.exit(f"{path}: not a field: {line}")
            mutant[key] = value.strip()
        if set(mutant) != set(FIELDS):
            sys.exit(f"{path}: not whole: {block}")
        mutants.append(mutant)
    names = [mutant["name"] for mutant in mutants]
    if len(set(names)) != len(names):
        sys.exit(f"{path}: a name occurs twice")
    return sorted(mutants, key=lambda mutant: (os.path.dirname(mutant["file"]), mutant["file"]))


def body(text, function):
    """The span of a definition: from the line with its name to the '}' in the first column."""
    # static tables are definitions, too
    start = re.search(rf"^[^\s#/].*\b{re.escape(function)}\b(?!.*;$).*$", text, re.M)
    if not start:
        raise Stale(f"no function {function}")
    end = re.search(r"^\}", text[start.start():], re.M)
    if not end:
        raise Stale(f"{function} has no end")
    return start.start(), start.start() + end.end()


def mutated(text, mutant):
    start, end = body(text, mutant["function"])
    function = text[start:end]
    if function.count(mutant["old"]) != 1:
        raise Stale(f"the old text occurs {function.count(mutant['old'])} times in "
                    f"{mutant['function']}")
    return text[:start] + function.replace(mutant["old"], mutant["new"]) + text[end:]


def run(command, folder, seconds, log, env=None):
    """The exit status; None: it took too long, and all that it started was ended."""
    with open(log, "wb") as out:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, env=env, start_new_session=True)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def copy_changed(source, target):
    """Leaves a file that is the same, so that a second run builds little."""
    if not os.path.exists(target) or not filecmp.cmp(source, target, shallow=False):
        shutil.copy2(source, target)
        os.utime(target)
    return target


class Tree:
    """A copy of the source and its build."""

    def __init__(self, folder, make_jobs):
        self.source = os.path.join(folder, "source")
        self.build = os.path.join(folder, "build")
        self.log = os.path.join(folder, "log")
        self.make_jobs = make_jobs
        self.seconds = {}  # of each test, without a mutant

    def prepare(self, targets):
        os.makedirs(self.build, exist_ok=True)
        shutil.copytree(TOP, self.source, symlinks=True, dirs_exist_ok=True,
                        copy_function=copy_changed, ignore=self.left_out)
        flags = os.environ.get("MUTANTS_CFLAGS", "-O1")
        if not os.path.exists(os.path.join(self.build, "Makefile")) and run(
                ["../source/configure", "-q", *CONFIGURE, f"CFLAGS={flags}", f"CXXFLAGS={flags}"],
                self.build, BUILD_SECONDS, self.log) != 0:
            raise Failed(f"configure fails: {self.end_of_log()}")
        if not self.make(targets):
            raise Failed(f"the build fails: {self.end_of_log()}")

    def left_out(self, folder, names):
        """What is not copied: builds, the repository, and what leads to this copy."""
        return [name for name in names if (folder == TOP and name in (".git", "build")) or
                self.source.startswith(os.path.join(folder, name) + os.sep)]

    def make(self, targets):
        return run(["make", "-s", f"-j{self.make_jobs}", *targets], self.build, BUILD_SECONDS,
                   self.log) == 0

    def end_of_log(self):
        with open(self.log, encoding="utf-8", errors="replace") as lines:
            return "".join(lines.readlines()[-OUTPUT_LINES:])

    def command(self, test):
        kind, _, names = test.partition(":")
        if names:
            return ["sh", f"../source/{RUNS[kind]}", *names.split(",")]
        return ["sh", f"../source/{test}"] if test.endswith(".sh") else [f"./{test}"]

    def test(self, test, seconds):
        env = dict(os.environ, srcdir="../source", PYTHON3=sys.executable)
        return run(self.command(test), self.build, seconds, self.log, env)

    def measure(self, test, targets):
        if test in self.seconds:
            return
        self.make(targets)  # what was built of a mutant before
        start = time.monotonic()
        status = self.test(test, BUILD_SECONDS)
        if status != 0:
            raise Stale(f"{test} without a mutant: status {status}: {self.end_of_log()}")
        self.seconds[test] = time.monotonic() - start

    def try_mutant(self, mutant):
        """What became of it: caught (and by which test), survived, stale (and why)."""
        path = os.path.join(self.source, mutant["file"])
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except OSError as why:
            return "stale", str(why)
        try:
            for test in mutant["tests"].split():
                self.measure(test, targets_of([mutant]))
            self.write(path, mutated(text, mutant))
            if not self.make(targets_of([mutant])):
                raise Stale(f"it does not compile: {self.end_of_log()}")
            for test in mutant["tests"].split():
                limit = max(LEAST_SECONDS, 5 * self.seconds[test])
                status = self.test(test, limit)
                if status != 0:
                    return "caught", test + (" (time)" if status is None else "")
            return "survived", mutant["tests"]
        except Stale as why:
            return "stale", str(why)
        finally:
            self.write(path, text)

    @staticmethod
    def write(path, text):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def targets_of(mutants):
    targets = set()
    for test in {test for mutant in mutants for test in mutant["tests"].split()}:
        if ":" in test:
            targets.update(NEEDS[RUNS[test.split(":")[0]]])
        elif test.endswith(".sh"):
            targets.update(NEEDS.get(test, ["kvarc"]))
        else:
            targets.update([test, *NEEDS.get(test, [])])
    return sorted(targets)


def work(tree, mutants, results):
    start = time.monotonic()
    try:
        tree.prepare(targets_of(mutants))
    except Failed as why:
        print(why, flush=True)
        return
    print(f"built in {time.monotonic() - start:.0f} s", flush=True)
    for mutant in mutants:
        start = time.monotonic()
        result = tree.try_mutant(mutant)
        results[mutant["name"]] = result
        print(f"{result[0]:9} {time.monotonic() - start:4.0f} s  {mutant['name']}: {result[1]}",
              flush=True)


def chosen(mutants, options):
    if options.names:
        mutants = [mutant for mutant in mutants
                   if any(name in (mutant["name"], mutant["file"]) or
                          (name.endswith("/") and mutant["file"].startswith(name))
                          for name in options.names)]
    index, parts = (int(n) for n in options.part.split("/"))
    return mutants[len(mutants) * (index - 1) // parts:len(mutants) * index // parts]


def main():
    parser = argparse.ArgumentParser(add_help=True, description="see the head of this file")
    parser.add_argument("--work", default=os.path.join(TOP, "build", "mutants"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--least", type=int)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    mutants = chosen(read_list(os.path.join(HERE, "list.txt")), options)
    if options.list:
        return show(mutants)
    results = {}
    jobs = max(1, min(options.jobs, len(mutants)))
    threads = []
    for job in range(jobs):
        share = mutants[len(mutants) * job // jobs:len(mutants) * (job + 1) // jobs]
        tree = Tree(os.path.join(os.path.abspath(options.work), str(job)),
                    max(1, (os.cpu_count() or 1) // jobs))
        threads.append(threading.Thread(target=work, args=(tree, share, results)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return report(mutants, results, options.least)


def show(mutants):
    """Names them, and says which ones do not fit the source any more."""
    stale = 0
    for mutant in mutants:
        why = ""
        try:
            with open(os.path.join(TOP, mutant["file"]), encoding="utf-8") as file:
                mutated(file.read(), mutant)
        except (OSError, Stale) as error:
            why = f": stale: {error}"
            stale += 1
        print(f"{mutant['name']:40} {mutant['file']}: {mutant['function']}{why}")
    print(f"mutants: {len(mutants)}, {stale} stale")
    return 1 if stale else 0


def report(mutants, results, least):
    folders = {}
    for mutant in mutants:
        counts = folders.setdefault(os.path.dirname(mutant["file"]), {})
        kind = results.get(mutant["name"], ("stale", ""))[0]
        counts[kind] = counts.get(kind, 0) + 1
    print(f"\n{'folder':24} caught survived stale")
    for folder, counts in folders.items():
        print(f"{folder:24} {counts.get('caught', 0):6} {counts.get('survived', 0):8} "
              f"{counts.get('stale', 0):5}")
    for mutant in mutants:
        kind, why = results.get(mutant["name"], ("stale", "it did not run"))
        if kind != "caught":
            print(f"{kind}: {mutant['name']} ({mutant['file']}, {mutant['function']}): {why}")
    kinds = [results.get(mutant["name"], ("stale", ""))[0] for mutant in mutants]
    caught, stale = kinds.count("caught"), kinds.count("stale")
    print(f"mutants: {caught} caught, {kinds.count('survived')} survived, {stale} stale")
    return 0 if not stale and caught >= (len(mutants) if least is None else least) else 1


if __name__ == "__main__":
    sys.exit(main())
