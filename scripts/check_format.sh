#!/bin/bash
# Fails if clang-format would change a source file. Versions format code differently, so only that of Debian 12
# counts; without it the check is skipped (exit code 77, which ctest understands).
set -euo pipefail
cd "$(dirname "$0")/.."

version=14
for formatter in "clang-format-$version" clang-format none; do
  command -v "$formatter" >/dev/null && "$formatter" --version | grep -q "version $version\." && break
done
if [ "$formatter" = none ]; then
  echo "check_format.sh: skipped, no clang-format $version"
  exit 77
fi
mapfile -d '' files < <(find include src models test \( -name '*.h' -o -name '*.cc' -o -name '*.cu' \) -print0 | sort -z)
"$formatter" --dry-run --Werror "${files[@]}"
