from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class Lockstep(CMakePackage):
    """MPI allreduce data-parallel trainer for convolutional networks, with asynchronous HDF5 checkpoints."""

    license("Apache-2.0")

    # The source is a local checkout: spack develop --path DIR lockstep@main
    version("main", branch="main", git="file:///path/to/lockstep")

    variant("tests", default=False, description="Build the tests as well")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.24:", type="build")
    depends_on("mpi@3:")
    depends_on("hdf5@1.10:~mpi")
    depends_on("onednn@2.6:")
    depends_on("libjpeg-turbo")
    depends_on("libpng")
    depends_on("zlib-api")
    depends_on("fmt@9:")
    depends_on("cli11", type="build")
    depends_on("tomlplusplus")
    depends_on("nlohmann-json", type="build")
    depends_on("catch2@2.13:", type="build", when="+tests")

    conflicts("%gcc@:11", msg="C++20 as of GCC 12")

    def cmake_args(self):
        return [
            self.define_from_variant("BUILD_TESTING", "tests"),
            self.define("LOCKSTEP_CUDA", "OFF"),
        ]
