"""Turns a file of CUDA kernels into C++ for the host: launches become calls of launch_kernel(), shared memory is static,
and launch bounds become functions that a launch calls to learn how many threads a block may have.

    translate_kernels.py SOURCE TARGET
"""

import pathlib
import re
import sys


def matching(text, at):
    """The place of the parenthesis that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i
    raise ValueError("unbalanced parentheses")


def split_arguments(text):
    """Splits at the commas that stand in no parentheses."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(c, 0)
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return parts + [text[start:]]


def start_of_name(text, end):
    """Where the kernel's name, template arguments included, begins that ends at `end`."""
    depth = 0
    while text[end - 1].isspace():
        end -= 1
    while end > 0:
        c = text[end - 1]
        if c in "<>":
            depth += 1 if c == ">" else -1
        elif depth == 0 and not (c.isalnum() or c in "_:"):
            break
        end -= 1
    return end


def translate_bounds(text):
    """Launch bounds as functions beside the kernels, which take the same arguments; and the kernels that have them."""
    pattern = re.compile(r"(template <[^;{}]*>\s*)?__global__ void (__launch_bounds__\()")
    result, done, bounded = "", 0, set()
    while found := pattern.search(text, done):
        end = matching(text, found.end() - 1)
        most_threads = split_arguments(text[found.end():end])[0]
        name = re.compile(r"\s*(\w+)\(").match(text, end + 1)
        parameters = text[name.end():matching(text, name.end() - 1)]
        result += text[done:found.start()]
        result += f"{found[1] or ''}inline unsigned {name[1]}_launch_bound({parameters}) {{ return {most_threads}; }}\n"
        result += text[found.start():found.start(2)]
        done = end + 1
        bounded.add(name[1])
    return result + text[done:], bounded


def translate_launches(text, bounded):
    result, done = "", 0
    while (opening := text.find("<<<", done)) >= 0:
        closing = text.index(">>>", opening)
        name_at = start_of_name(text, opening)
        grid, block, *rest = split_arguments(text[opening + 3:closing])
        shared, stream = (rest + ["0", "nullptr"][len(rest):])
        arguments_at = text.index("(", closing)
        end = matching(text, arguments_at)
        name = re.match(r"\w+", text[name_at:].lstrip())[0]
        called, arguments = text[name_at:opening].strip(), text[arguments_at + 1:end].strip()
        bound = f", {called.replace(name, name + '_launch_bound', 1)}({arguments})" if name in bounded else ""
        shape = f'{{"{name}", dim3({grid}), dim3({block}), static_cast<size_t>({shared}){bound}}}'
        # Arguments are copied at the launch, as CUDA does; the kernel may run later.
        kernel = f"[](auto... arguments) {{ {called}(arguments...); }}"
        result += text[done:name_at] + f"launch_kernel({shape}, {stream}, {kernel}{', ' if arguments else ''}{arguments})"
        done = end + 1
    return result + text[done:]


def main():
    source, target = map(pathlib.Path, sys.argv[1:])
    text = translate_launches(*translate_bounds(source.read_text(encoding="utf-8")))
    text = re.sub(r"extern __shared__ (\w+) (\w+)\[\];",
                  r"\1* const \2 = static_cast<\1*>(dynamic_shared_memory());", text)
    text = re.sub(r"__shared__ (alignas\(\d+\) )?([\w ]+?) (\w+)((?:\[[^;]*\])?);",
                  r"\1static \2 \3\4; const SharedVariable shared_\3(&\3, sizeof \3);", text)
    if "__shared__" in text:
        raise ValueError(f"{source}: shared memory in a form that is not known here")
    if "__launch_bounds__" in text:
        raise ValueError(f"{source}: launch bounds in a form that is not known here")
    include = '#include "test/backend/cuda_on_host/emulate.h"\n'
    text = text.replace("#pragma once\n", "#pragma once\n" + include) if source.suffix == ".h" else include + text
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
