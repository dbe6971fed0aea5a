import subprocess

import pytest


@pytest.fixture(scope="session")
def lockproxy():
    """The URL of a lockproxy for all tests."""
    process = subprocess.Popen(
        ["lockproxy", "--attached", "yes", "--listen", "127.0.0.1:0", "--log-level", "error"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield "redis://" + process.stdout.readline().strip()
    process.stdin.close()
    process.wait()
