"""A program runs on every x86-64 processor: whatever needs more than the first of them had is in a function that is chosen
at run time and whose name says what it needs. In particular, no inline function of a library was taken by the linker from a
file that is compiled for newer processors. Nor is a function compiled for a model of processor: it would be chosen on that
maker's processors alone, however much others have.

    instruction_sets_test.py PROGRAM
"""

import re
import shutil
import subprocess
import sys

CHOSEN = re.compile(r"avx2|avx512|sse42|pclmul|\.arch_x86_64_v\d")
FOR_ONE_MAKER = re.compile(r"\.arch_(?!x86_64_v)\w+")  # haswell, znver3 and the like
# VEX and EVEX encodings are written with a v; the rest is SSE3 to SSE4.2 and what came with it.
LATER = re.compile(r"v(?!err|erw|m)\w+|(?:h|addsub)\w*p[sd]|movddup|movs[hl]dup|lddqu|pshufb|palignr|pabs[bwd]|psign[bwd]|"
                   r"ph(?:add|sub)\w+|pmaddubsw|pmulhrsw|pmul(?:ld|dq)|p?blend\w+|round[ps][sd]|dpp[sd]|mpsadbw|ptest|"
                   r"pinsr[bdq]|pextr[bdq]|insertps|extractps|pmov[sz]x\w+|pm(?:in|ax)(?:sb|sd|uw|ud)|packusdw|pcmpeqq|"
                   r"pcmpgtq|pcmp[ei]str[im]|movntdqa|crc32[bwlq]?|popcnt[wlq]?|pclmul\w+|aes\w+|sha\d\w+|andn|bextr|bzhi|"
                   r"mulx|rorx|s[ah][rl]x|shlx|pdep|pext|movbe[wlq]?")
FUNCTION = re.compile(r"[0-9a-f]+ <(.*)>:")
INSTRUCTION = re.compile(r"\s+[0-9a-f]+:\s+(\S+)")


def main(program):
    if not shutil.which("objdump"):
        return 77
    listing = subprocess.Popen(["objdump", "-d", "-C", "--no-show-raw-insn", program], stdout=subprocess.PIPE, text=True)
    function, chosen, wrong, right = "", False, {}, set()
    for line in listing.stdout:
        if instruction := INSTRUCTION.match(line):
            if LATER.fullmatch(instruction[1]):
                right.add(function) if chosen else wrong.setdefault(function, f"uses {instruction[1]}")
        elif start := FUNCTION.match(line):
            function, chosen = start[1], CHOSEN.search(start[1]) is not None
            if model := FOR_ONE_MAKER.search(function):
                wrong[function] = f"is compiled for one maker's processors: {model[0]}"
    if listing.wait() != 0:
        return "objdump failed"
    if len(right) < 10:
        return f"only {len(right)} functions for newer processors in {program}: does this test see its instructions?"
    print(f"{len(right)} functions for newer processors")
    return "\n".join(f"{name} {reason}" for name, reason in wrong.items()) or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
