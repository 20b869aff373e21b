"""Every file, name and test that docs/extending.md quotes exists: extending_test.py SOURCE_DIRECTORY"""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
EXAMPLES = re.compile(r"gelu|erf|tiny_cnn|lion|webdataset|tpu|^no matching function|^models/recipes/<name>", re.IGNORECASE)

files = [path for top in ("src", "include", "models", "test", "scripts", "cmake", "docs") for path in (root / top).rglob("*")
         if path.suffix in (".cc", ".h", ".cu", ".py", ".sh", ".cmake", ".txt", ".md", ".toml", ".tsv")]
files += [root / name for name in ("CHANGELOG.md", "CMakeLists.txt", "CMakePresets.json")]
names = [f"/{path.relative_to(root)}" for path in files]
text = "\n".join(path.read_text(encoding="utf-8") for path in files if path.suffix != ".md")
words = set(re.findall(r"\w+", text))
text = re.sub(r'"\s*"', "", re.sub(r"\s+", " ", text))  # what the compiler joins
text += re.sub("_", " ", text)                          # names of tests in Python

page = re.sub(r"\s+", " ", (root / "docs/extending.md").read_text(encoding="utf-8"))


def exists(quoted):
    if re.fullmatch(r"[\w/.]+\.(cc|h|cu|py|sh|txt|md|toml|tsv)", quoted):
        return any(name.endswith(f"/{quoted}") for name in names)
    if quoted.endswith("/"):
        return any(f"/{quoted}" in name for name in names)
    return not re.fullmatch(r"[\w:]+", quoted) or quoted.split("::")[-1] in words


code = {quoted for quoted in re.findall(r"`([^`]+)`", page) if not EXAMPLES.search(quoted)}
tests = {quoted for quoted in re.findall(r'"([^"]+)"', page) if not EXAMPLES.search(quoted)}
missing = [quoted for quoted in code if not exists(quoted)]
missing += [title for title in tests if not all(part.strip(" ,") in text for part in title.split("..."))]
assert len(code) > 200 and len(tests) > 20, f"only {len(code)} names and {len(tests)} tests: does this test read the page rightly?"
for quoted in sorted(missing):
    print(f"docs/extending.md quotes what is nowhere: {quoted}")
print(f"{len(code)} names, {len(tests)} tests")
sys.exit(bool(missing))
