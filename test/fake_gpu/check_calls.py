"""Fails when the plugin on the fake device calls a function of CUDA's libraries that has no fake, and names it.

    check_calls.py NM PLUGIN
"""

import re
import subprocess
import sys


def main():
    nm, plugin = sys.argv[1:]
    symbols = subprocess.run([nm, "-D", "--undefined-only", plugin], check=True, capture_output=True, text=True).stdout
    missing = sorted(set(re.findall(r"\bU ((?:cu|nccl|nvrtc|__cuda)\w*)", symbols)))
    if missing:
        sys.exit(f"{plugin}: there is no fake of {', '.join(missing)}; write one in test/fake_gpu")


if __name__ == "__main__":
    main()
