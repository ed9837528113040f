# SPDX-License-Identifier: BSD-3-Clause
"""Real services on the loopback for tests of stores: redis-server, moto's S3 server."""
import os
import shutil
import socket
import subprocess
import sys
import time

import pytest

import kvarc
from kvarc import blocks

HERE = os.path.dirname(os.path.abspath(__file__))
MOTO = os.path.join(HERE, "..", "..", "tests", "moto_server.py")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Service:
    """A server: start(), stop(), and the URL of a store in it, with what BlockStore needs."""

    def __init__(self, kind, folder):
        self.kind, self.folder, self.port, self.s3 = kind, folder, free_port(), {}
        self.process = None
        self.url = f"redis://127.0.0.1:{self.port}/1" if kind == "redis" else \
            f"s3://bucket/prefix?endpoint=http://127.0.0.1:{self.port}"

    def start(self):
        if self.kind == "redis":
            self.process = subprocess.Popen(
                ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
                 "--dir", str(self.folder)], stdout=subprocess.DEVNULL)
            for _ in range(100):
                try:
                    return socket.create_connection(("127.0.0.1", self.port)).close()
                except OSError:
                    time.sleep(0.1)
            raise RuntimeError("redis-server does not answer")
        self.process = subprocess.Popen(
            [os.environ.get("KVARC_TEST_MOTO", sys.executable), MOTO], text=True,
            env={**os.environ, "MOTO_PORT": str(self.port)}, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL)
        for line in self.process.stdout:
            if line.startswith("ready "):
                _, self.s3["access_key"], self.s3["secret_key"] = line.split()
                return None
        raise RuntimeError("moto does not answer")

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process = None


def has_moto():
    python = os.environ.get("KVARC_TEST_MOTO", sys.executable)
    return subprocess.run([python, "-c", "import moto.server, boto3"],
                          stderr=subprocess.DEVNULL).returncode == 0


def started(kind, folder):
    """A service that runs; the test is skipped where it is not installed or not built in."""
    if kind == "redis" and not shutil.which("redis-server"):
        pytest.skip("no redis-server (Debian: redis-server)")
    if kind == "s3" and not has_moto():
        pytest.skip("no moto: KVARC_TEST_MOTO names a Python that has it")
    service = Service(kind, folder)
    try:
        service.start()
        blocks.BlockStore(service.url, s3=service.s3).close()
    except kvarc.OptionsError as e:
        service.stop()
        pytest.skip(str(e))
    except BaseException:
        service.stop()
        raise
    return service
