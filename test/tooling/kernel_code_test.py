"""The machine code of our own CUDA kernels, as nvcc and ptxas make it for an H100 (sm_90), keeps its rules:

- a kernel on packs loads and stores its images 16 bytes at a time, and no narrower;
- nothing is spilled or put into local memory;
- registers and shared memory of each kernel are within the table below, registers also within what its launch bounds
  promise, so that as many blocks as those say fit into a multiprocessor;
- rows in flight are really loaded before the first of them is used.

    kernel_code_test.py SOURCE_DIRECTORY NVCC

Where nvdisasm is (beside nvcc, in the path or in build/python) the instructions themselves are read, else the intermediate
code alone. Ends with 77 where there is no nvcc.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

REGISTERS_OF_PROCESSOR = 65536
SHARED_OF_BLOCK = 49152
# The most registers a thread, and static shared memory, by kernel and the number of values a pack; the first that matches.
# A kernel that needs more is slower in a way that no other test shows: find out why, then change its row. A new kernel
# needs a row.
TABLE = [
    (r"map_rows<.*\bNormalize<", 64, 0),
    (r"norm_max_pool<", 72, 0),
    (r"map_rows<.*PooledGradient", 128, 0),
    (r"sum_rows<.*(PooledGradient|SummedTerms|AveragedTerms)", 128, 16400),
    (r"map_rows<.*(ApplyGradient|GradientOfCoefficients)", 80, 0),
    (r"map_rows<.*GradientOfNormalized", 128, 0),
    (r"sum_rows<.*(GradientTerms|PooledTerms)", 112, 16400),
    (r"sum_rows<", 88, 16400),
    (r"^(map|add|convert)<|^(add_bias|drop|interleave|copy_units)<", 64, 0),
    (r"apply_optimizer<", 64, 16400),
    (r"transpose<", 56, 4300),
    (r"transpose_few<", 48, 8200),
    (r"convert_pieces<", 64, 8200),
    (r"softmax", 48, 4200),
    (r"lrn_", 64, 0),
    (r"prepare_pixels<true", 64, 24700),
    (r"prepare_pixels<false", 64, 0),
    (r"^(max|avg)_pool(_grad)?<", 64, 0),
    (r"^(running_slopes|moments|statistics_of_sums|coefficients_of_sums)\b|^norm_of_sums<", 64, 0),
    (r"^(sum_bags|scatter_bags)\b", 64, 0),
    (r"^(apply_average|apply_statistics|pack_header|decide)\b", 64, 0),
    (r"piece_squares|segment_trust|partial_squares|add_partial|find_non_finite", 40, 4200),
]
# Kernels on packs: how many 16-byte loads stand before the first 16-byte store or sum, and at least how many such stores
# there are. A new kernel on packs needs a row.
PACKED = [
    (r"map_rows<[48], Normalize", 4, 1),
    (r"map_rows<[48], (ApplyGradient<\w+, Image|GradientOfCoefficients|GradientOfNormalized<\w+, Image)", 4, 1),
    (r"sum_rows<[48], GradientTerms<\w+, Image", 8, 0),
    (r"sum_rows<[48], (Batch|Plain)Terms", 8, 0),
    # Pools gather a row from several pixels.
    (r"map_rows<[48], (ApplyGradient|GradientOfNormalized)<\w+, Pooled", 8, 2),
    (r"sum_rows<[48], GradientTerms<\w+, Pooled", 16, 0),
    (r"sum_rows<[48], PooledTerms", 8, 0),
    (r"sum_rows<[48], (Summed|Averaged)Terms", 8, 2),
    (r"^norm_max_pool<\w+, [48]>", 1, 1),  # a pixel of the window at a time, beside the norm's numbers
    (r"^max_pool<\w+, [48]>", 3, 1),
    (r"^max_pool_grad<\w+, [48]>", 8, 1),
    (r"^avg_pool(_grad)?<\w+, [48]>", 6, 1),
    (r"add<[48], [\w]+, 1>", 1, 1),
    (r"add<[48], [\w]+, 2>", 2, 1),
    (r"add<[48], [\w]+, 3>", 3, 1),
    (r"add<[48], [\w]+, 4>", 4, 1),
    (r"\bmap<[48],", 1, 1),
    (r"convert<[48],", 1, 1),
    (r"^copy_units<uint4>", 1, 1),
    # Gradients, values and slots are loaded; values, slots and the copies in 16 bits, if any, are stored.
    (r"apply_optimizer<.*(Sgd|Nesterov|Lars)Rule, float>", 3, 2),
    (r"apply_optimizer<.*(Sgd|Nesterov|Lars)Rule", 3, 3),
    (r"apply_optimizer<.*, float>", 4, 3),
    (r"apply_optimizer<", 4, 4),
    (r"apply_average", 2, 1),
]
ON_PACKS = r"^\w+<[48],|_pool(_grad)?<\w+, [48]>|^apply_(optimizer|average)\b"  # by their template arguments
GATHERS = r"Pooled|SummedTerms|AveragedTerms"  # so that a row is not loaded as often as it is stored


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def readable(names):
    """The kernels' names as they stand in the source, by their mangled names."""
    plain = run("c++filt", *names).splitlines()
    return {name: re.sub(r"lockstep::cuda::|lockstep::|\(anonymous namespace\)::|^void ", "", text)
            for name, text in zip(names, plain)}


def compiled(nvcc, source, root, directory):
    """Intermediate code, ptxas's report and the binary of one file."""
    binary = directory / f"{source.stem}.cubin"
    options = ["-std=c++20", "--expt-relaxed-constexpr", "-arch=sm_90", f"-I{root / 'src'}", f"-I{root / 'include'}"]
    run(nvcc, *options, "-ptx", "-o", directory / f"{source.stem}.ptx", source)
    report = run(nvcc.parent / "ptxas", "-v", "-arch=sm_90", "-o", binary, directory / f"{source.stem}.ptx")
    return (directory / f"{source.stem}.ptx").read_text(encoding="utf-8"), report, binary


def check_resources(report, bounds, failures):
    """Registers, spills and shared memory, as ptxas reports them."""
    pattern = re.compile(r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
                         r"(\d+) bytes spill loads.*?Used (\d+) registers(.*?)\n", re.S)
    found = pattern.findall(report)
    names = readable([kernel for kernel, *_ in found])
    for kernel, *numbers, rest in found:
        stack, spill_stores, spill_loads, registers = map(int, numbers)
        shared = int((re.search(r"(\d+) bytes smem", rest) or [0, 0])[1])
        name = names[kernel]
        if stack or spill_stores or spill_loads:
            failures.append(f"{name}: {stack} bytes of stack, {spill_stores} and {spill_loads} spilled")
        row = next(((r, s) for pattern, r, s in TABLE if re.search(pattern, name)), None)
        if not row:
            failures.append(f"{name}: no row in TABLE")
            continue
        most, most_shared = row
        if registers > most:
            failures.append(f"{name}: {registers} registers, the table allows {most}")
        if shared > min(most_shared, SHARED_OF_BLOCK):
            failures.append(f"{name}: {shared} bytes of shared memory, the table allows {most_shared}")
        threads, blocks = bounds.get(kernel, (0, 0))
        if "_rows<" in name and not blocks:
            failures.append(f"{name}: no launch bounds that say how many blocks a multiprocessor holds")
        granted = -(-registers // 8) * 8
        if blocks and granted * threads * blocks > REGISTERS_OF_PROCESSOR:
            failures.append(f"{name}: {blocks} blocks of {threads} threads with {registers} registers do not fit")
    return names


def functions_of(ptx):
    """Each kernel's intermediate code by its mangled name."""
    parts = re.split(r"\.entry (\w+)", ptx)
    return dict(zip(parts[1::2], parts[2::2]))


def bounds_of(functions):
    bounds = {}
    for kernel, text in functions.items():
        threads, blocks = re.search(r"\.maxntid (\d+)", text), re.search(r"\.minnctapersm (\d+)", text)
        bounds[kernel] = (int(threads[1]) if threads else 0, int(blocks[1]) if blocks else 0)
    return bounds


def check_intermediate(functions, names, failures):
    checked = 0
    for kernel, text in functions.items():
        name = names[kernel]
        if re.search(r"\b(ld|st)\.local", text):
            failures.append(f"{name}: uses local memory")
        rule = next((r for r in PACKED if re.search(r[0], name)), None)
        if not rule:
            if re.search(ON_PACKS, name):
                failures.append(f"{name}: no row in PACKED")
            continue
        checked += 1
        if not re.search(r"ld\.global[\w.]*\.v4", text):
            failures.append(f"{name}: no load of 16 bytes")
        stores = len(re.findall(r"st\.global[\w.]*\.v4\.(?:b|u|f)32", text))
        if stores < rule[2]:
            failures.append(f"{name}: {stores} stores of 16 bytes, not {rule[2]}")
    return checked


def check_instructions(listing, names, failures):
    """Widths and order of loads and stores, by the instructions."""
    checked = 0
    for part in re.split(r"\n//-+ \.text\.", listing)[1:]:
        kernel = re.match(r"\w+", part)[0]
        name = names.get(kernel, kernel)
        code = re.findall(r"\b(LDG|STG|LDL|STL)\.([A-Z0-9.]+)", part)
        if any(op in ("LDL", "STL") for op, _ in code):
            failures.append(f"{name}: uses local memory")
        rule = next((r for r in PACKED if re.search(r[0], name)), None)
        if not rule:
            continue
        checked += 1
        _, in_flight, stores = rule
        wide = ["L" if op == "LDG" else "S" for op, kind in code if kind.startswith("E.128")]
        longest = max((len(run) for run in re.findall(r"L+", "".join(wide))), default=0)
        if longest < in_flight:
            failures.append(f"{name}: {longest} loads of 16 bytes one after the other, not {in_flight}")
        loads = sum(op == "LDG" and kind.startswith("E.128") for op, kind in code)
        if wide.count("S") < stores:
            failures.append(f"{name}: {wide.count('S')} stores of 16 bytes, not {stores}")
        # Where a loop is unrolled over rows, each row that is loaded whole is stored whole.
        if stores and "_rows<" in name and not re.search(GATHERS, name):
            of_row = 2 if "Gradient" in name else 1
            if wide.count("S") * of_row != loads or any(op == "STG" and not kind.startswith("E.128") for op, kind in code):
                failures.append(f"{name}: {loads} loads of 16 bytes, but {wide.count('S')} such stores")
    return checked


def main(root, nvcc):
    nvcc = shutil.which(nvcc) or shutil.which("nvcc")
    if not nvcc:
        print("there is no nvcc here")
        return 77
    root, nvcc = pathlib.Path(root), pathlib.Path(nvcc).resolve()
    packages = sorted(map(str, root.resolve().glob("build/python/lib/python*/site-packages/nvidia/*/bin")))
    directories = os.pathsep.join([str(nvcc.parent), os.environ.get("PATH", ""), *packages])
    disassembler = shutil.which("nvdisasm", path=directories)
    failures, kernels, packed, read = [], 0, 0, 0
    with tempfile.TemporaryDirectory() as directory:
        for source in sorted((root / "src/backend/cuda").glob("*.cu")):
            ptx, report, binary = compiled(nvcc, source, root, pathlib.Path(directory))
            functions = functions_of(ptx)
            names = check_resources(report, bounds_of(functions), failures)
            kernels += len(names)
            packed += check_intermediate(functions, names, failures)
            if disassembler:
                read += check_instructions(run(disassembler, "-c", binary), names, failures)
    print(f"{kernels} kernels, {packed} of them on packs" +
          ("" if disassembler else "; no nvdisasm here, so their instructions were not read"))
    if kernels < 280 or packed < 120 or (disassembler and read != packed):
        failures.append(f"{kernels} kernels, {packed} and {read} on packs: does this test see them?")
    return "\n".join(failures) or 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
