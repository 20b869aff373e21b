"""What is needed to build, in the recipes of scripts/packaging, is what CMake looks for: usage: recipes_test.py SOURCE_DIRECTORY"""

import pathlib
import re
import sys

source = pathlib.Path(sys.argv[1])
SPACK = {"MPI": "mpi", "HDF5": "hdf5", "fmt": "fmt", "CLI11": "cli11", "tomlplusplus": "tomlplusplus",
         "nlohmann_json": "nlohmann-json", "PNG": "libpng", "JPEG": "libjpeg-turbo", "ZLIB": "zlib-api", "dnnl": "onednn"}
NO_PACKAGE = {"Threads", "OpenMP"}  # the compiler's

dependencies = (source / "cmake/LockstepDependencies.cmake").read_text()
found = set(re.findall(r"find_package\((\w+)", dependencies)) | set(re.findall(r"find_library\(\w+ (\w+)", dependencies))
found -= NO_PACKAGE
assert len(found) > 5, f"only {found} in LockstepDependencies.cmake: does this test read it rightly?"

recipe = (source / "scripts/packaging/spack/package.py").read_text()
compile(recipe, "package.py", "exec")
named = set(re.findall(r'depends_on\("([a-z][\w-]*)', recipe)) - {"c", "cxx", "cmake", "catch2"}
wanted = {SPACK.get(name, f"(no Spack name for {name} in this test)") for name in found}
assert named == wanted, f"package.py misses {wanted - named} and has {named - wanted} without need"

for name in ("Containerfile", "lockstep.def"):
    text = (source / "scripts/packaging" / name).read_text()
    assert "scripts/install_dependencies.sh --without-tests" in text, f"{name} installs something else"
print(f"{len(found)} libraries, in all recipes")
