# cpack -G DEB: a Debian package of what cmake --install installs, but for the CUDA plugin, whose libraries no Debian package
# brings.

set(CPACK_PACKAGE_NAME ${PROJECT_NAME})
set(CPACK_PACKAGE_CONTACT "The Lockstep developers <lockstep@example.org>")
set(CPACK_PACKAGE_DESCRIPTION "Trains Inception-v3 and other convolutional networks on many processes by MPI allreduce, and
writes HDF5 checkpoints without stopping. Start it with mpirun or srun.")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/readable_directories.cmake)
set(CPACK_COMPONENTS_ALL Unspecified)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# The libraries by what the program links; mpirun, which no program links, by name.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS openmpi-bin)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "python3-matplotlib, slurm-client")
include(CPack)
