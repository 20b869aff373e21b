#!/bin/bash
# Copies a built program with every library that it needs, except those of CUDA and glibc, to one directory that runs
# anywhere on machines without our packages: scripts/bundle.sh [--archive] [--fake-gpu] [BUILD_DIRECTORY [OUTPUT_DIRECTORY]].
#
# It contains mpirun, trainer and lockstep (start these), bin/, lib/ with $ORIGIN run paths, Open MPI's plugins and texts,
# recipes, all licences and, if they were built, the CUDA plugin, the tests that need a GPU and gpu_acceptance.sh.
# glibc is that of the target and must be as new as this machine's. When a program starts, it finds CUDA's libraries there:
# those of Python's packages nvidia-*, then those of a toolkit.
#
# --archive: also writes OUTPUT_DIRECTORY.tar.gz, and fails if that is larger than 40 MB.
# --fake-gpu: replaces the CUDA plugin and the driver by the fake device of the test suite (docs/fake_gpu.md), to try the
# bundle without a GPU.
set -euo pipefail
cd "$(dirname "$0")/.."

archive= fake_gpu=
while :; do
  case ${1:-} in
    --archive) archive=yes ;;
    --fake-gpu) fake_gpu=yes ;;
    *) break ;;
  esac
  shift
done
build=${1:-build/release}
out=$(realpath -m "${2:-build/bundle}")
for tool in patchelf mpirun ompi_info; do
  command -v "$tool" >/dev/null || { echo "bundle.sh: $tool is missing (Debian: patchelf, openmpi-bin)" >&2; exit 1; }
done
[ -x "$build/trainer" ] || { echo "bundle.sh: there is no $build/trainer; build first, or name the directory" >&2; exit 1; }
# cmake --install would copy the files of the directory in which the tree was built.
built_in=$(sed -n 's/^CMAKE_CACHEFILE_DIR:INTERNAL=//p' "$build/CMakeCache.txt")
[ "$(realpath "$built_in")" = "$(realpath "$build")" ] ||
  { echo "bundle.sh: $build was built in $built_in; configure it where it is now" >&2; exit 1; }
mpirun --version | grep -q "Open MPI) 4" || { echo "bundle.sh: made for Open MPI 4" >&2; exit 1; }

path_of() { ompi_info --path "$1" --parsable | sed -n '1s/^path:[a-z]*://p'; }
mpi_plugins=$(path_of pkglibdir)
mpi_texts=$(path_of pkgdatadir)
mpi_settings=$(path_of sysconfdir)
libpmix=$(ldd "$mpi_plugins"/mca_pmix_ext3x.so 2>/dev/null | awk '$1 ~ /^libpmix/ {print $3}')
pmix=$(dirname "$(readlink -f "${libpmix:-/}")")  # PMIx's own directory, with lib and share in it
pmix_plugins=$pmix/pmix

rm -rf "$out"
mkdir -p "$out"/{bin,lib/openmpi,lib/pmix,share/openmpi,share/pmix,etc}
cmake --install "$build" --prefix "$out" >/dev/null  # the program, its recipes and their data, the CUDA plugin
cp "$(readlink -f "$(command -v orterun)")" "$out/bin/orterun"
cp "$(readlink -f "$(command -v orted)")" "$out/bin/orted"
cp "$mpi_texts"/*.txt "$out/share/openmpi/" 2>/dev/null || true
cp "$pmix"/../share/pmix/*.txt "$out/share/pmix/" 2>/dev/null || true
cp "$mpi_settings"/openmpi-mca-params.conf "$out/etc/" 2>/dev/null || true
# Plugins for networks whose libraries have plugins themselves, and for other interfaces, are left out: shared memory and
# sockets need none of them.
find "$mpi_plugins" -name '*.so' ! -name '*ucx*' ! -name '*ofi*' ! -name '*psm*' ! -name '*openib*' ! -name '*flux*' \
  ! -name '*dbg_msgq*' ! -name 'mca_*_yoda.so' ! -name 'mca_spml_*' ! -name 'mca_sshmem_*' ! -name 'mca_scoll_*' \
  ! -name 'mca_memheap_*' ! -name 'mca_atomic_*' -exec cp -L {} "$out/lib/openmpi/" \;
if [ -d "$pmix_plugins" ]; then cp -L "$pmix_plugins"/*.so "$out/lib/pmix/"; fi
if [ "$fake_gpu" ]; then
  cp "$build/fake_gpu/lockstep_cuda.so" "$out/lib/lockstep/"
  cp "$build"/fake_gpu/{backend_test,golden_test,gpu_lab} "$out/bin/"
  cp "$build/fake_gpu/libcuda.so.1" "$out/lib/"
fi
if [ -e "$out/lib/lockstep/lockstep_cuda.so" ]; then
  for test in backend/backend_test models/golden_test gpu_lab/gpu_lab; do
    if [ -x "$build/test/$test" ]; then cp -n "$build/test/$test" "$out/bin/"; fi
  done
  mkdir -p "$out/share/golden"
  cp test/golden/*.h5 "$out/share/golden/"
  cp test/models/step_budget.tsv "$out/share/"
  cp -r scripts/gpu_kit "$out/share/"
  rm -rf "$out/share/gpu_kit/__pycache__"
fi
{ git describe --always --dirty --abbrev=40 2>/dev/null || echo unknown; } >"$out/VERSION"

# The libraries that the loader finds here, except those of the target: glibc, and CUDA with its driver.
needed() {
  ldd "$1" 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// {print $3}' |
    grep -Ev '/(ld-linux[^/]*|libc|libm|libdl|libpthread|librt|libutil|libresolv|libanl|libnss_[a-z]+|libBrokenLocale)\.so' |
    grep -Ev '/(libcuda|libcudart|libcublas|libcublasLt|libcudnn[a-z_]*|libnccl|libnvidia[^/]*|libnvrtc|libnvJitLink)\.so' || true
}
find "$out/bin" "$out/lib" -type f | while read -r file; do needed "$file"; done | sort -u |
  while read -r library; do cp -nL "$library" "$out/lib/"; done

# The licences of the packages of all copied files, and of those whose headers the programs contain.
copied() {
  find "$out/bin" "$out/lib" -type f | while read -r file; do needed "$file"; done
  find "$mpi_plugins" "$pmix_plugins" -maxdepth 1 -name '*.so' 2>/dev/null
  readlink -f "$(command -v orterun)"
}
owner_of() {  # The same file has two names where /lib is a link to /usr/lib.
  local file=$1
  dpkg -S "$file" 2>/dev/null || dpkg -S "$(readlink -f "$file")" 2>/dev/null || dpkg -S "${file#/usr}" 2>/dev/null ||
    dpkg -S "/usr$file" 2>/dev/null || echo "bundle.sh: no package owns $file; its licence is not in the bundle" >&2
}
headers=(libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libfmt-dev catch2)
mkdir -p "$out/licenses"
{ copied | sort -u | while read -r file; do owner_of "$file"; done | cut -d: -f1; printf '%s\n' "${headers[@]}"; } | sort -u |
  while read -r package; do
    [ -f "/usr/share/doc/$package/copyright" ] || continue
    mkdir -p "$out/licenses/$package"
    cp -L "/usr/share/doc/$package/copyright" "$out/licenses/$package/"
  done
grep -rhoE '/usr/share/common-licenses/[A-Za-z0-9.+-]*[A-Za-z0-9]' "$out/licenses" | sort -u |
  while read -r text; do
    if [ -f "$text" ]; then mkdir -p "$out/licenses/common-licenses"; cp -L "$text" "$out/licenses/common-licenses/"; fi
  done
cp LICENSE NOTICE "$out/licenses/"
frontend=build/cudnn_frontend/include/cudnn_frontend.h  # its licence is the comment at its top
if [ -e "$out/lib/lockstep/lockstep_cuda.so" ] && [ -f "$frontend" ]; then
  mkdir -p "$out/licenses/cudnn-frontend"
  sed '/\*\//q' "$frontend" >"$out/licenses/cudnn-frontend/copyright"
fi

# The old kind of run path, which also applies to libraries that a library loads, plugins included.
find "$out/bin" "$out/lib" -type f | while read -r file; do
  if ! patchelf --print-rpath "$file" >/dev/null 2>&1; then continue; fi
  case $file in
    "$out"/bin/*) run_path='$ORIGIN/../lib' ;;
    "$out"/lib/*/*) run_path='$ORIGIN/..' ;;
    *) run_path='$ORIGIN' ;;
  esac
  patchelf --force-rpath --set-rpath "$run_path" "$file"
done

# The starters tell Open MPI where its parts are now, and the plugin where CUDA's are.
cat >"$out/environment" <<'ENVIRONMENT'
# Read by the starters beside it, which set `here`.
export OPAL_PREFIX="$here" OPAL_BINDIR="$here/bin" OPAL_LIBDIR="$here/lib" OPAL_PKGLIBDIR="$here/lib/openmpi"
export OPAL_PKGDATADIR="$here/share/openmpi" OPAL_SYSCONFDIR="$here/etc"
export PMIX_PREFIX="$here" PMIX_LIBDIR="$here/lib" PMIX_PKGLIBDIR="$here/lib/pmix" PMIX_PKGDATADIR="$here/share/pmix"
# Without ssh and Slurm only this machine can be used; the settings keep Open MPI from looking for them.
[ "$SLURM_JOB_ID" ] || command -v ssh >/dev/null || export OMPI_MCA_plm="${OMPI_MCA_plm:-isolated}"
# Once per job, because mpirun passes it on to the ranks.
if [ -z "${LOCKSTEP_CUDA_LIBRARIES+set}" ] && [ -e "$here/lib/lockstep/lockstep_cuda.so" ]; then
  LOCKSTEP_CUDA_LIBRARIES=$("${PYTHON:-python3}" "$here/share/cuda_libraries.py" 2>/dev/null || true)
  for directory in /usr/local/cuda/lib64 /usr/local/cuda/lib /usr/local/nvidia/lib64 /usr/local/nvidia/lib; do
    [ ! -d "$directory" ] || LOCKSTEP_CUDA_LIBRARIES="${LOCKSTEP_CUDA_LIBRARIES:+$LOCKSTEP_CUDA_LIBRARIES:}$directory"
  done
  # Directories that are set already are still searched; the driver may be in one of them.
  LD_LIBRARY_PATH="$LOCKSTEP_CUDA_LIBRARIES${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  export LOCKSTEP_CUDA_LIBRARIES LD_LIBRARY_PATH
fi
ENVIRONMENT
cat >"$out/share/cuda_libraries.py" <<'LIBRARIES'
"""Prints the directories of the CUDA libraries in Python's packages nvidia-*, as LD_LIBRARY_PATH wants them."""
import importlib.util
import pathlib

package = importlib.util.find_spec("nvidia")
roots = package.submodule_search_locations if package else []
print(":".join(sorted({str(file.parent) for root in roots for file in pathlib.Path(root).glob("*/lib/*.so*")})))
LIBRARIES
starter() {  # starter NAME COMMAND
  printf '#!/bin/sh\nhere=$(cd "${0%%/*}" && pwd)\n. "$here/environment"\nexec %s "$@"\n' "$2" >"$out/$1"
  chmod +x "$out/$1"
}
starter mpirun '"$here/bin/orterun"'
starter trainer '"$here/bin/trainer"'
starter lockstep 'env PATH="$here:$PATH" "$here/bin/lockstep"'
starter run ''  # any command with the libraries of the bundle: run bin/backend_test '[gpu]'
if [ -d "$out/share/gpu_kit" ]; then
  cat >"$out/gpu_acceptance.sh" <<'ACCEPTANCE'
#!/bin/sh
here=$(cd "${0%/*}" && pwd)
exec "${PYTHON:-python3}" "$here/share/gpu_kit" --bundle "$here" "$@"
ACCEPTANCE
  chmod +x "$out/gpu_acceptance.sh"
fi

du -sh "$out" | awk -v directory="$out" '{print "bundle.sh: " $1 " in " directory}'
if [ "$archive" ]; then
  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$(dirname "$out")" -cf - "$(basename "$out")" |
    gzip -9n >"$out.tar.gz"
  bytes=$(stat -c %s "$out.tar.gz")
  echo "bundle.sh: $bytes bytes in $out.tar.gz"
  if [ "$bytes" -gt 40000000 ]; then
    echo "bundle.sh: that is more than 40 MB" >&2
    exit 1
  fi
fi
