"""An operation that is added to the variant alone fails to compile at every place where work is owed.

    new_operation_test.py SOURCE_DIRECTORY BUILD_DIRECTORY

Puts copies of the operations' headers first on the include path, with one operation more, and compiles the sources that
know all operations, without making code. The compile commands are those of the build, whose compiler is GCC.
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

ROOT, BUILD = map(pathlib.Path, sys.argv[1:3])
HEADERS = pathlib.Path("include/lockstep/ops")
COMPLETE = '.name = "MadeUp", .differentiable = true, .onnx = true, .lowered_inputs = 0, .saved_output = 1'
# What the compiler must name, by source: a function that has no overload for the operation.
OWED = {
    "src/ops/infer.cc": ["infer_op"],
    "src/graph/gradients.cc": ["rule"],
    "src/exchange/onnx.cc": ["draw"],
    "src/backend/reference/reference_backend.cc": ["compute", "saved_bytes"],
    "src/backend/cpu/cpu_backend.cc": ["compile", "choose_formats", "saved_bytes", "slices_of"],
    "src/backend/cuda/cuda_backend.cc": ["compile", "slices_of"],
    "src/backend/cuda/context.cc": ["saved_bytes"],
}


def commands():
    """The compile command of each source, as a list of arguments, without output and input."""
    found = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8")):
        source = pathlib.Path(entry["file"]).resolve()
        if not source.is_relative_to(ROOT.resolve()):
            continue
        name = source.relative_to(ROOT.resolve()).as_posix()
        if name in OWED:
            arguments = shlex.split(entry["command"])
            arguments = arguments[1:] if arguments[0].endswith("ccache") else arguments
            cut = arguments.index("-o")
            found[name] = (arguments[:cut], entry["directory"])
    return found


class NewOperation(unittest.TestCase):
    commands = commands()

    def compile(self, source, facts, content=None):
        """The compiler's errors for one source, or other content in its place, with the operation MadeUp of these facts.

        Facts of None: without such an operation.
        """
        arguments, directory = self.commands[source]
        with tempfile.TemporaryDirectory() as place:
            copies = pathlib.Path(place) / "lockstep" / "ops"
            copies.mkdir(parents=True)
            for header in (ROOT / HEADERS).glob("*.h"):
                text = header.read_text(encoding="utf-8")
                if facts is not None and header.name == "ops.h":
                    made_up = f"struct MadeUp {{\n  static constexpr OpFacts facts{{{facts}}};\n}};\n\n"
                    text = text.replace("using Op =", made_up + "using Op =", 1)
                    text = re.sub(r"std::variant<\s*Conv2d,", "std::variant<MadeUp, Conv2d,", text, count=1)
                    assert "std::variant<MadeUp, " in text, text
                (copies / header.name).write_text(text, encoding="utf-8")
            file = ROOT / source
            if content:
                file = pathlib.Path(place) / "content.cc"
                file.write_text(content, encoding="utf-8")
            run = subprocess.run(
                [arguments[0], f"-I{place}", *arguments[1:], "-fsyntax-only", "-fmax-errors=0", file],
                cwd=directory, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
            return "" if run.returncode == 0 else run.stderr

    def test_every_source_that_knows_all_operations_is_compiled_here(self):
        missing = set(OWED) - set(self.commands)
        # Without the CUDA toolkit the CUDA backend is not built.
        self.assertIn(missing, [set(), {name for name in OWED if "/cuda/" in name}])

    def test_the_copies_of_the_headers_compile_without_it(self):
        self.assertEqual(self.compile("src/ops/infer.cc", None), "")

    def test_each_place_is_an_error(self):
        for source in self.commands:
            errors = [line for line in self.compile(source, COMPLETE).splitlines() if "error: " in line]
            for function in OWED[source]:
                with self.subTest(source, owed=function):
                    # GCC names the call that has no overload, or the std::visit whose cases do not cover the operation.
                    self.assertTrue(any(re.search(rf"\b{function}\(", line) and re.search(r"MadeUp|\bvisit\(", line)
                                        for line in errors), errors)

    def test_each_fact_must_be_stated(self):
        content = '#include "lockstep/ops/ops.h"\n'
        self.assertEqual(self.compile("src/ops/infer.cc", COMPLETE, content), "")
        for fact in [".name", ".differentiable", ".onnx", ".lowered_inputs"]:
            stated = ", ".join(part for part in COMPLETE.split(", ") if not part.startswith(fact + " "))
            with self.subTest(fact):
                self.assertRegex(self.compile("src/ops/infer.cc", stated, content), "could not convert .*Required<")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
