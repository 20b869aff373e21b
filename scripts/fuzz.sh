#!/bin/bash
# Fuzzes the readers of foreign bytes with libFuzzer, by clang with the address and undefined-behaviour sanitizers.
#
#     fuzz.sh [--installed] [TARGET|all] [SECONDS]
#
# Each target runs for so many seconds (60), one after the other, from its seeds in test/fuzz/corpus and from what earlier
# runs found in build/fuzz/corpus. A finding is left in build/fuzz/findings/TARGET and ends the script with 1.
# --installed: install nothing; where clang or its libraries are missing, say so and exit with 77. docs/fuzzing.md
set -euo pipefail
cd "$(dirname "$0")/.."

installed=no
if [ "${1:-}" = --installed ]; then installed=yes; shift; fi
wanted=${1:-all}
seconds=${2:-60}

probe() { echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
  clang++ -x c++ -fsanitize=fuzzer,address,undefined -o /dev/null - 2>/dev/null; }
if ! command -v clang++ >/dev/null || ! probe; then
  if [ "$installed" = yes ]; then
    echo "fuzz.sh: skipped, clang with libFuzzer is not installed (packages clang and libclang-rt-dev)"
    exit 77
  fi
  scripts/install_dependencies.sh clang libclang-rt-dev
fi

mapfile -t targets < <(sed -n 's/^    Target{"\([a-z0-9_]*\)".*/\1/p' test/fuzz/targets.h)
if [ "$wanted" != all ]; then
  printf '%s\n' "${targets[@]}" | grep -qx "$wanted" || {
    echo "fuzz.sh: no target $wanted; there are ${targets[*]}" >&2
    exit 2
  }
  targets=("$wanted")
fi

build=build/fuzz
[ -f "$build/build.ninja" ] || cmake --preset fuzz
cmake --build --preset fuzz --parallel "$(nproc)" --target "${targets[@]/#/fuzz_}"

# An input is at most 64 kB. What a reader may take for it, docs/fuzzing.md says; memory that the sanitizer keeps back
# after a free is no use of the reader's.
export ASAN_OPTIONS=quarantine_size_mb=16:detect_leaks=1:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1
limits=(-max_len=65536 -timeout=20 -malloc_limit_mb=128 -rss_limit_mb=768)

processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
echo "machine: ${processor:-unknown}, $(nproc) cores; $(clang++ --version | head -n 1); commit $(git rev-parse --short HEAD)"
result=0
for target in "${targets[@]}"; do
  corpus=$build/corpus/$target
  findings=$build/findings/$target
  mkdir -p "$corpus" "$findings"
  seeds=("test/fuzz/corpus/$target")
  if [ -d "test/fuzz/findings/$target" ]; then seeds+=("test/fuzz/findings/$target"); fi
  dictionary=()
  if [ -f "test/fuzz/dictionaries/$target" ]; then dictionary=("-dict=test/fuzz/dictionaries/$target"); fi
  log=$build/$target.log
  # What a target prints itself is of no interest; reports of libFuzzer and the sanitizers go to the log.
  code=0
  "$build/test/fuzz/fuzz_$target" "${limits[@]}" "${dictionary[@]}" -max_total_time="$seconds" -print_final_stats=1 \
    -close_fd_mask=3 -artifact_prefix="$findings/" "$corpus" "${seeds[@]}" >"$log" 2>&1 </dev/null || code=$?
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  coverage=$(grep -o 'cov: [0-9]* ft: [0-9]*' "$log" | tail -n 1 || true)
  peak=$(sed -n 's/^stat::peak_rss_mb: *//p' "$log")
  read -r _ edges _ features <<<"${coverage:-cov: 0 ft: 0}"
  echo "$target: ${executions:-0} executions in $seconds s, $edges edges, $features features, ${peak:-?} MB at most"
  if [ "$code" -ne 0 ]; then
    result=1
    echo "$target: FINDING, see $log"
    grep -E '^SUMMARY|ERROR: |: runtime error:|Test unit written' "$log" | head -n 8 || true
    # What the target itself says of the newest one.
    input=$(find "$findings" -type f -printf '%T@ %p\n' | sort -rn | head -n 1 | cut -d' ' -f2-)
    [ -z "$input" ] || timeout 60 "$build/test/fuzz/fuzz_$target" "${limits[@]}" "$input" 2>&1 </dev/null | grep -aE '^an? ' | head -n 3 || true
  fi
done
exit "$result"
