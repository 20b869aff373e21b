#!/bin/bash
# Copies a built program with every library it needs, CUDA's and glibc's excepted, into one folder that runs from
# anywhere on machines without our packages: scripts/bundle.sh [BUILD_FOLDER [OUTPUT_FOLDER]].
#
# In it: mpirun and trainer (start these), bin/, lib/ with $ORIGIN run paths, Open MPI's plugins and texts, recipes, the
# licences of all of it, and the CUDA plugin and test programs where they were built. glibc is the target's, which must be as new as this machine's.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${1:-build/release}
out=$(realpath -m "${2:-build/bundle}")
for tool in patchelf mpirun ompi_info; do
  command -v "$tool" >/dev/null || { echo "bundle.sh: $tool is missing (Debian: patchelf, openmpi-bin)" >&2; exit 1; }
done
[ -x "$build/trainer" ] || { echo "bundle.sh: there is no $build/trainer; build first, or name the folder" >&2; exit 1; }
mpirun --version | grep -q "Open MPI) 4" || { echo "bundle.sh: made for Open MPI 4" >&2; exit 1; }

path_of() { ompi_info --path "$1" --parsable | sed -n '1s/^path:[a-z]*://p'; }
mpi_plugins=$(path_of pkglibdir)
mpi_texts=$(path_of pkgdatadir)
mpi_settings=$(path_of sysconfdir)
libpmix=$(ldd "$mpi_plugins"/mca_pmix_ext3x.so 2>/dev/null | awk '$1 ~ /^libpmix/ {print $3}')
pmix_plugins=$(dirname "$(readlink -f "${libpmix:-/}")")/pmix

rm -rf "$out"
mkdir -p "$out"/{bin,lib/openmpi,lib/pmix,share/openmpi,etc}
cmake --install "$build" --prefix "$out" >/dev/null  # the program, its recipes and their data, the CUDA plugin
cp "$(readlink -f "$(command -v orterun)")" "$out/bin/orterun"
cp "$(readlink -f "$(command -v orted)")" "$out/bin/orted"
cp "$mpi_texts"/*.txt "$out/share/openmpi/" 2>/dev/null || true
cp "$mpi_settings"/openmpi-mca-params.conf "$out/etc/" 2>/dev/null || true
# Plugins for networks whose own libraries have plugins again, and other languages', stay behind: shared memory and
# sockets need none of them.
find "$mpi_plugins" -name '*.so' ! -name '*ucx*' ! -name '*ofi*' ! -name '*psm*' ! -name '*openib*' ! -name '*flux*' \
  ! -name '*dbg_msgq*' -exec cp -L {} "$out/lib/openmpi/" \;
if [ -d "$pmix_plugins" ]; then cp -L "$pmix_plugins"/*.so "$out/lib/pmix/"; fi
for test in backend/backend_test models/models_test models/golden_test; do
  if [ -x "$build/test/$test" ]; then cp "$build/test/$test" "$out/bin/"; fi
done

# What the loader finds here, less what the target has: glibc, and CUDA with its driver.
needed() {
  ldd "$1" 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// {print $3}' |
    grep -Ev '/(ld-linux[^/]*|libc|libm|libdl|libpthread|librt|libutil|libresolv|libanl|libnss_[a-z]+|libBrokenLocale)\.so' |
    grep -Ev '/(libcuda|libcudart|libcublas|libcublasLt|libcudnn[a-z_]*|libnccl|libnvidia[^/]*|libnvrtc|libnvJitLink)\.so' || true
}
find "$out/bin" "$out/lib" -type f | while read -r file; do needed "$file"; done | sort -u |
  while read -r library; do cp -nL "$library" "$out/lib/"; done

# Licences: of the packages of what was copied, and of those whose headers the programs contain.
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

# The old kind of run path, which also serves what a library loads in turn, plugins included.
find "$out/bin" "$out/lib" -type f | while read -r file; do
  if ! patchelf --print-rpath "$file" >/dev/null 2>&1; then continue; fi
  case $file in
    "$out"/bin/*) run_path='$ORIGIN/../lib' ;;
    "$out"/lib/*/*) run_path='$ORIGIN/..' ;;
    *) run_path='$ORIGIN' ;;
  esac
  patchelf --force-rpath --set-rpath "$run_path" "$file"
done

# Starters: Open MPI is told where its parts are now.
for program in mpirun trainer; do
  target=$program
  if [ "$program" = mpirun ]; then target=orterun; fi
  cat >"$out/$program" <<STARTER
#!/bin/sh
here=\$(cd "\${0%/*}" && pwd)
export OPAL_PREFIX="\$here" OPAL_BINDIR="\$here/bin" OPAL_LIBDIR="\$here/lib" OPAL_PKGLIBDIR="\$here/lib/openmpi"
export OPAL_PKGDATADIR="\$here/share/openmpi" OPAL_SYSCONFDIR="\$here/etc"
export PMIX_PREFIX="\$here" PMIX_LIBDIR="\$here/lib" PMIX_PKGLIBDIR="\$here/lib/pmix"
# Without ssh and Slurm only this machine can be used; Open MPI has to be told not to look for them.
[ "\$SLURM_JOB_ID" ] || command -v ssh >/dev/null || export OMPI_MCA_plm="\${OMPI_MCA_plm:-isolated}"
exec "\$here/bin/$target" "\$@"
STARTER
  chmod +x "$out/$program"
done

du -sh "$out" | awk -v folder="$out" '{print "bundle.sh: " $1 " in " folder}'
