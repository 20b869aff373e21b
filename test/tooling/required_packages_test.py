"""Every package that the build requires is used by a target of it: required_packages_test.py SOURCE_DIRECTORY"""

import pathlib
import re
import sys
import tempfile

FIND = re.compile(r"^\s*find_package\((\w+)[^)]*\bREQUIRED\b", re.M)
LINK = re.compile(r"(?:target_link_libraries|lockstep_add_layer|lockstep_add_unit_tests)\(([^)]*)\)")


def unused_packages(source):
    """Packages of cmake/LockstepDependencies.cmake none of whose targets, NAME::..., is linked to one of ours."""
    required = FIND.findall((source / "cmake/LockstepDependencies.cmake").read_text())
    linked = set()
    for path in [*source.glob("*/CMakeLists.txt"), *source.glob("*/*/CMakeLists.txt")]:
        for arguments in LINK.findall(path.read_text()):
            linked.update(target.lower() for target in re.findall(r"(\w+)::\w+", arguments))
    if len(required) < 5:
        sys.exit(f"only {required} are required: does this test still read the right file?")
    return [name for name in required if name.lower() not in linked]


def main(source):
    unused = unused_packages(source)
    if unused:
        return f"required, but linked by no target: {', '.join(unused)}"
    with tempfile.TemporaryDirectory() as directory:  # the check sees one that is planted
        copy = pathlib.Path(directory)
        for path in ["cmake/LockstepDependencies.cmake", *(str(p.relative_to(source)) for p in source.glob("src/*/CMakeLists.txt"))]:
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            (copy / path).write_text((source / path).read_text())
        with open(copy / "cmake/LockstepDependencies.cmake", "a") as file:
            file.write("find_package(Planted CONFIG REQUIRED)\n")
        if "Planted" not in unused_packages(copy):
            return "a package that nothing links is not found"
    return 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
