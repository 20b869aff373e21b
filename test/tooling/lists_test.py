"""What one list names, the lists that repeat it name as well: lists_test.py SOURCE_DIRECTORY"""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])


def read(path):
    return (root / path).read_text(encoding="utf-8")


def found(path, pattern):
    return set(re.findall(pattern, read(path), re.MULTILINE))


def stems(pattern):
    return {path.stem for path in root.glob(pattern)}


def members(body):
    """The names in declarations such as `double l1 = 0, l2 = 0;` of a struct."""
    declarations = re.findall(r"^ +[\w:<>]+ ([^;()]+);", re.sub(r"{[^}]*}", "", body), re.MULTILINE)
    return {name.split()[0] for declaration in declarations for name in declaration.split(",")}


def members_of(path, struct):
    return members(re.search(rf"struct {struct} {{(.*?)\n}};", read(path), re.DOTALL)[1])


def missing_in(path, names, written="`{}`"):
    assert names, f"nothing is listed for {path}: does this test read its sources rightly?"
    text = read(path)
    return [f"{path} lacks {written.format(name)}" for name in sorted(names) if written.format(name) not in text]


keys = {f"{section}, {name}"
        for body, section in re.findall(r"^  struct \w+ {(.*?)^  } (\w+);", read("include/lockstep/config/config.h"), re.M | re.S)
        for name in members(body)}

# Keys whose change is refused when a run resumes; the meaning of the key that allows it names them.
refused = {key for row in found("src/config/changes.cc", r'ChangeEffect::(?:input|model), "([^"]*)"') for key in row.split()}
allowed = re.search(r"^\| `allow_changes`.*$", read("docs/configuration.md"), re.MULTILINE)[0]

problems = [
    *missing_in("models/README.md", stems("models/recipes/*.toml")),
    *missing_in("test/models/model_file_test.cc", stems("models/definitions/*.toml"), '"{}"'),
    *missing_in("test/golden/README.md", {path.name for path in root.glob("test/golden/*.h5")}),
    *missing_in("docs/model_files.md", found("models/model_file.cc", r'^      \{"(\w+)", ')),
    *missing_in("docs/model_files.md", found("src/exchange/onnx_operators.cc", r'^      \{"(\w+)", '), "{}"),
    *missing_in("docs/benchmark_mode.md", found("src/app/cli/benchmark_flags.cc", r'BenchmarkModel\{"(\w+)", ')),
    *missing_in("docs/data.md", found("src/data/source/formats.cc", r'DataFormat\{"(\w+)", ')),
    *missing_in("docs/training.md", found("src/backend/update_rules.cc", r'OptimizerKind::\w+, "(\w+)", ')),
    *missing_in("docs/fuzzing.md", found("test/fuzz/targets.h", r'Target\{"(\w+)", ')),
    *missing_in("src/train/model_graphs.cc",
                members_of("include/lockstep/graph/model_builder.h", "ModelOptions") - {"dtype"}, ".{} = "),  # of tests alone
    *missing_in("src/train/optimizer.cc", members_of("include/lockstep/backend/update.h", "ApplyOptimizer"), ".{} = "),
    *missing_in("src/config/keys.cc", keys, "LOCKSTEP_KEY({})"),
    *(f"the meaning of checkpoint.allow_changes lacks {key}" for key in sorted(refused) if key not in allowed),
    *missing_in("docs/checkpoints.md", refused),
]
for problem in problems:
    print(problem)
sys.exit(bool(problems))
