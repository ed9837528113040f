# SPDX-License-Identifier: BSD-3-Clause
"""Every public call says its keywords, their types and what it does; type checkers see it."""
import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
import typing

import pytest

import kvarc

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(kvarc.__file__)))


def public_calls():
    """(name, function) of the package and of its modules that can be imported here."""
    owners = [("kvarc", kvarc, kvarc.__all__)]
    for name in ("blocks", "canary", "mlx", "replay", "transformers"):
        try:
            module = importlib.import_module(f"kvarc.{name}")
        except ImportError:
            continue
        owners.append((f"kvarc.{name}", module, module.__all__))
    for owner, module, names in owners:
        for name in names:
            found = getattr(module, name)
            if inspect.isfunction(found):
                yield f"{owner}.{name}", found
            if not inspect.isclass(found):
                continue
            for member, value in vars(found).items():
                value = getattr(value, "__func__", getattr(value, "fget", value))
                special = member in ("__init__", "__getitem__", "__iter__", "__contains__")
                written = inspect.isfunction(value) and \
                    value.__code__.co_filename.endswith(".py")
                if written and (special or not member.startswith("_")):
                    yield f"{owner}.{name}.{member}", value


CALLS = dict(public_calls())


@pytest.mark.parametrize("name", CALLS)
def test_keywords_have_names_and_types(name):
    signature = inspect.signature(CALLS[name])
    assert signature.return_annotation is not inspect.Signature.empty
    for parameter in signature.parameters.values():
        assert parameter.kind is not parameter.VAR_KEYWORD, parameter
        assert parameter.name == "self" or parameter.name == "cls" or \
            parameter.annotation is not parameter.empty, parameter
    for hint in typing.get_type_hints(CALLS[name]).values():  # all names are there
        assert hint is not None


@pytest.mark.parametrize("name", CALLS)
def test_help_says_what_it_does(name):
    if not name.endswith("__"):
        assert len(inspect.getdoc(CALLS[name]) or "") > 10


def test_keywords_mean_the_same_everywhere():
    """A keyword of Writer or Reader has its default and its type in every other call."""
    other = {("kvarc.bench", "threads"), ("kvarc.blocks.encode", "threads"),
             ("kvarc.blocks.decode", "threads"), ("kvarc.blocks.BlockStore.__init__", "threads"),
             ("kvarc.blocks.BlockStore.__init__", "sync")}  # one thread a block; a cache
    for of in (kvarc.Writer, kvarc.Reader):
        known = inspect.signature(of).parameters
        for name, call in CALLS.items():
            for key, parameter in inspect.signature(call).parameters.items():
                same = key in known and parameter.kind is parameter.KEYWORD_ONLY and \
                    key not in ("tracks", "tensors", "identity", "append")
                if same and (name, key) not in other and "Profile" not in name:
                    assert (parameter.default, parameter.annotation) == \
                        (known[key].default, known[key].annotation), (name, key)
    assert set(inspect.signature(kvarc.Writer).parameters) - {
        "tracks", "tensors", "append"} <= set(inspect.signature(kvarc.save).parameters)
    assert set(inspect.signature(kvarc.Reader).parameters) - {"salvage"} <= set(
        inspect.signature(kvarc.load).parameters)


def mypy(*arguments):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    environment = {**os.environ, "MYPYPATH": SOURCE}
    environment.pop("PYTHONPATH", None)
    return subprocess.run([sys.executable, "-m", "mypy", "--no-error-summary",
                           "--cache-dir", os.devnull, *arguments], cwd=HERE, env=environment,
                          capture_output=True, text=True)


def test_a_right_program_passes_strict():
    done = mypy("--strict", "--follow-imports", "silent", "typed_good.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_mistakes_are_found():
    """Each line with a mistake has one error, of its code; no other line has any."""
    with open(os.path.join(HERE, "typed_bad.py"), encoding="utf-8") as f:
        planted = {(n, m[1]) for n, line in enumerate(f, 1)
                   if (m := re.search(r"# expect: ([a-z-]+)", line))}
    done = mypy("--strict", "--follow-imports", "silent", "typed_bad.py")
    found = re.findall(r"^typed_bad\.py:([0-9]+): error: .*\[([a-z-]+)\]$", done.stdout, re.M)
    assert len(planted) == len(found) == 5
    assert {(int(n), code) for n, code in found} == planted


def test_the_package_passes():
    if importlib.util.find_spec("torch"):
        pytest.skip("torch is installed, whose sources mypy would read, too")
    done = mypy("--ignore-missing-imports", "-p", "kvarc")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_right_program_runs(tmp_path):
    import io

    import typed_good
    assert typed_good.archives(tmp_path) > 0
    assert list(typed_good.readers(io.BytesIO()).values())[0].shape == (16, 2, 8)
    assert typed_good.sessions(tmp_path) > 0
    assert typed_good.errors(str(tmp_path / "s.kva")) is None
