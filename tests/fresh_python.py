"""Programs run by another Python, where nothing is imported yet and no import hook checks types."""

import subprocess
import sys


def in_fresh_python(program: str) -> str:
    """What the program prints; it fails the test where the program fails."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
