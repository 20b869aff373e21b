"""check_layers.py finds what it is there to find: each case plants one fault in a clean tree."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "check_layers.py"
LAYERS = ["tensor", "io", "ops", "backend", "data", "checkpoint", "exchange", "observe", "app"]
FAMILIES = ["batch_norm", "conv2d", "embedding", "linear", "local_response_norm", "loss", "placement", "pointwise", "pool",
            "update"]
KERNELS = [f"{backend}/{family}.cc" for backend in ["reference", "cpu", "cuda"] for family in FAMILIES]
CLEAN = {
    **{f"src/backend/{kernel}": "\n" for kernel in KERNELS},
    "src/backend/CMakeLists.txt": "lockstep_add_layer(backend SOURCES " + " ".join(KERNELS) + ")\n",
    # Room enough that no directory is too large.
    **{f"src/{layer}/{layer}.h": "#pragma once\n" + "//\n" * 60 for layer in LAYERS},
    "include/lockstep/base/error.h": "#pragma once\n#include <string>\n",
    "include/lockstep/graph/graph.h": '#pragma once\n#include "lockstep/base/error.h"\n',
    "include/lockstep/comm/transport/communicator.h": '#pragma once\n#include "lockstep/base/error.h"\n',
    "src/base/error.cc": '#include "lockstep/base/error.h"\n',
    "src/base/CMakeLists.txt": "lockstep_add_layer(base SOURCES error.cc)\n",
    "src/graph/pass.h": "#pragma once\n",
    "src/graph/graph.cc": '#include "graph/pass.h"\n#include "lockstep/graph/graph.h"\n',
    "src/graph/CMakeLists.txt": "lockstep_add_layer(graph SOURCES graph.cc)\n",
    "src/train/step.cc": '#include "lockstep/comm/transport/communicator.h"\n#include "lockstep/graph/graph.h"\n',
    "src/train/CMakeLists.txt": "lockstep_add_layer(train SOURCES step.cc)\n",
}


class CheckLayers(unittest.TestCase):
    def run_on(self, files):
        """Exit code and output for the clean tree with files (path: text) added or replaced; None takes a file away."""
        with tempfile.TemporaryDirectory() as directory:
            for path, text in {**CLEAN, **files}.items():
                if text is None:
                    continue
                file = pathlib.Path(directory) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            run = subprocess.run([sys.executable, SCRIPT, directory, "--lengths"], capture_output=True, text=True)
            return run.returncode, run.stdout

    def expect(self, complaint, files):
        code, output = self.run_on(files=files)
        self.assertEqual(code, 1, output)
        self.assertIn(complaint, output)
        self.assertIn("1 complaints", output)

    def test_clean_tree_passes(self):
        code, output = self.run_on(files={})
        self.assertEqual(code, 0, output)

    def test_upward(self):
        self.expect("src/base/error.cc:1: layer base includes upward to graph",
                    {"src/base/error.cc": '#include "lockstep/graph/graph.h"\n'})

    def test_peer(self):
        self.expect("src/graph/graph.cc:2: layer graph includes its peer comm",
                    {"src/graph/graph.cc": '\n#include "lockstep/comm/transport/communicator.h"\n'})

    def test_private_header_of_a_lower_layer(self):
        self.expect('src/train/trainer.h:2: "graph/pass.h" is a private header of layer graph',
                    {"src/train/trainer.h": '#pragma once\n#include "graph/pass.h"\n'})

    def test_models_see_only_the_graph_builder(self):
        self.expect("layer models may not include comm",
                    {"models/net.cc": '#include "lockstep/comm/transport/communicator.h"\n', "models/CMakeLists.txt": "net.cc"})

    def test_vendor_header_in_an_interface(self):
        self.expect("vendor header <mpi.h> under include/",
                    {"include/lockstep/comm/transport/communicator.h": "#pragma once\n#include <mpi.h>\n"})

    def test_header_in_both_trees(self):
        self.expect("include/lockstep/graph/graph.h: a header of this name stands in src/ too",
                    {"src/graph/graph.h": "#pragma once\n"})

    def test_public_header_of_one_layer_alone(self):
        self.expect("include/lockstep/graph/schedule.h: no other layer includes it",
                    {"include/lockstep/graph/schedule.h": "#pragma once\n",
                     "src/graph/graph.cc": '#include "lockstep/graph/schedule.h"\n'})

    def test_public_header_that_a_public_header_includes(self):
        code, output = self.run_on(files={
            "include/lockstep/graph/node.h": "#pragma once\n",
            "include/lockstep/graph/graph.h":
                '#pragma once\n#include "lockstep/base/error.h"\n#include "lockstep/graph/node.h"\n'})
        self.assertEqual(code, 0, output)

    def test_room_beyond_an_eighth(self):
        self.expect("backend/cuda: 311 lines, more than an eighth of the program",
                    {"src/backend/cuda/kernels.h": "#pragma once\n" + "//\n" * 300})

    def test_family_of_operations_that_a_backend_lacks(self):
        for backend in ["reference", "cpu", "cuda"]:
            self.expect(f"src/backend/{backend}/pool.cc: missing", {f"src/backend/{backend}/pool.cc": None})

    def test_family_under_another_name(self):
        self.expect("src/backend/cpu/pool.cc: missing",
                    {"src/backend/cpu/pool.cc": None, "src/backend/cpu/max_pool.cc": "\n",
                     "src/backend/cpu/CMakeLists.txt": "max_pool.cc"})

    def test_family_with_device_code_alone(self):
        self.expect("src/backend/cuda/loss.cc: missing",
                    {"src/backend/cuda/loss.cc": None, "src/backend/cuda/loss.cu": "\n",
                     "src/backend/cuda/CMakeLists.txt": "loss.cu"})

    def test_header_without_guard(self):
        self.expect("header without #pragma once", {"include/lockstep/base/error.h": "\n"})

    def test_unlisted_source(self):
        self.expect("src/base/log.cc: listed in no CMakeLists.txt", {"src/base/log.cc": "\n"})

    def test_name_that_only_ends_like_a_listed_one_is_unlisted(self):
        self.expect("src/base/or.cc: listed in no CMakeLists.txt", {"src/base/or.cc": "\n"})

    def test_glob(self):
        self.expect("collects sources by file(GLOB)",
                    {"src/graph/CMakeLists.txt": "file(GLOB all *.cc)\nlockstep_add_layer(graph SOURCES graph.cc)\n"})

    def test_long_function_is_reported_and_no_failure(self):
        body = "int f() {\n" + "  g();\n" * 70 + "}\n"
        code, output = self.run_on(files={"src/base/error.cc": body})
        self.assertEqual(code, 0, output)
        self.assertIn("src/base/error.cc:1: function of 72 lines", output)


if __name__ == "__main__":
    unittest.main()
