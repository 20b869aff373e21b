"""check_words.py finds a word that was given up, names the one to take, and leaves the exceptions alone."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "check_words.py"


def run_on(path, text):
    """Exit code and output for a tree of one file."""
    with tempfile.TemporaryDirectory() as root:
        file = pathlib.Path(root) / path
        file.parent.mkdir(parents=True)
        file.write_text(text)
        run = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True)
        return run.returncode, run.stdout


class CheckWords(unittest.TestCase):
    def test_clean_code_passes(self):
        self.assertEqual(run_on("src/io/file.cc", "// Writes the directory again.\n"), (0, "0 words to replace\n"))

    def test_a_given_up_word_is_named_with_its_place(self):
        code, output = run_on("src/io/file.cc", "int x;\n// Writes the folder anew.\n")
        self.assertEqual(code, 1)
        self.assertIn("src/io/file.cc:2: 'folder': rather directory\n", output)
        self.assertIn("src/io/file.cc:2: 'anew': rather again\n", output)

    def test_the_manual_and_the_tests_are_read_too(self):
        for path in ("docs/data.md", "test/io/file_test.cc"):
            self.assertEqual(run_on(path, "The obstacle is named.\n")[0], 1)

    def test_a_data_format_keeps_its_name(self):
        self.assertEqual(run_on("docs/data.md", "| `folder` | one directory a class |\n")[0], 0)


if __name__ == "__main__":
    unittest.main()
