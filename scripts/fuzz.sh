#!/bin/bash
# Fuzzes the readers of untrusted bytes with libFuzzer, built by clang with address and undefined-behavior sanitizers.
#
#     fuzz.sh [--installed] [TARGET|all] [SECONDS]
#
# The targets run one after the other, each for SECONDS (60), from their seeds in test/fuzz/corpus and the inputs that
# earlier runs kept in build/fuzz/corpus. A finding stays in build/fuzz/findings/TARGET, and the script exits with 1.
# --installed: installs nothing; if clang or its libraries are missing, says so and exits with 77. See docs/fuzzing.md.
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

# Whether a crash or a large allocation is inside the HDF5 library: its frames come first, and it was not filling memory
# of ours. Its readers of metadata do both on damaged files, and no check of ours can precede them (docs/fuzzing.md). A
# crash that the input alone does not cause counts too: an earlier input in the same process damaged the library's memory.
in_hdf5() { # TARGET INPUT
  local output frames code=0
  # Without a limit of resident memory, a large allocation is reported at the place of the call.
  output=$(timeout 60 "$build/test/fuzz/fuzz_$1" "${limits[@]}" -rss_limit_mb=0 "$2" 2>&1 </dev/null) || code=$?
  [ "$code" -ne 0 ] || return 0
  frames=$(grep -aE '^ *#[0-9]+ 0x' <<<"$output" |
    grep -avE '__interceptor|__sanitizer|__asan|fuzzer::| in (str|mem|malloc|calloc|realloc)[a-z]* |/libc\.so|sysdeps/' ||
    true)
  head -n 1 <<<"$frames" | grep -aq libhdf5 && ! grep -aqE ' in H5[AD]read ' <<<"$frames"
}

[ -f "$build/build.ninja" ] || cmake --preset fuzz
cmake --build --preset fuzz --parallel "$(nproc)" --target "${targets[@]/#/fuzz_}"

# An input is at most 64 kB. docs/fuzzing.md says how much memory a reader may use for it; memory that the sanitizer
# quarantines after a free does not count.
export ASAN_OPTIONS=quarantine_size_mb=16:detect_leaks=1:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1
export LSAN_OPTIONS=suppressions=$PWD/test/fuzz/lsan.supp:print_suppressions=0
limits=(-max_len=65536 -timeout=20 -malloc_limit_mb=128 -rss_limit_mb=768)

processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
compiler=$(clang++ --version | head -n 1)
echo "machine: ${processor:-unknown}, $(nproc) cores; $compiler; commit $(git rev-parse --short HEAD)"
result=0
for target in "${targets[@]}"; do
  corpus=$build/corpus/$target
  findings=$build/findings/$target
  mkdir -p "$corpus" "$findings"
  seeds=("test/fuzz/corpus/$target")
  if [ -d "test/fuzz/findings/$target" ]; then seeds+=("test/fuzz/findings/$target"); fi
  log=$build/$target.log
  # The output of the target itself is discarded; reports of libFuzzer and the sanitizers go to the log.
  code=0
  going_on=()
  case $target in
    hdf5_data | hdf5_weights | checkpoint) going_on=(-fork=1 -ignore_crashes=1) ;;
  esac
  "$build/test/fuzz/fuzz_$target" "${going_on[@]}" "${limits[@]}" -max_total_time="$seconds" -print_final_stats=1 \
    -close_fd_mask=3 -artifact_prefix="$findings/" "$corpus" "${seeds[@]}" >"$log" 2>&1 </dev/null || code=$?
  if [ "${#going_on[@]}" -gt 0 ]; then # one child after the other, so the parent counts
    executions=$(sed -n 's/^#\([0-9]*\): cov: .*/\1/p' "$log" | tail -n 1)
    inside=0
    # The parent exits with the code of its last child, so inputs that were found decide.
    if [ -n "$(find "$findings" -maxdepth 1 -type f -print -quit)" ]; then code=0; fi
    while IFS= read -r input; do
      if in_hdf5 "$target" "$input"; then
        mkdir -p "$findings/hdf5"
        mv "$input" "$findings/hdf5/"
        inside=$((inside + 1))
      else
        code=1
      fi
    done < <(find "$findings" -maxdepth 1 -type f)
    [ "$inside" -eq 0 ] || echo "$target: $inside crashes inside the HDF5 library, see $findings/hdf5"
  else
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  fi
  coverage=$(grep -o 'cov: [0-9]* ft: [0-9]*' "$log" | tail -n 1 || true)
  peak=$(sed -n 's/^stat::peak_rss_mb: *//p' "$log")
  read -r _ edges _ features <<<"${coverage:-cov: 0 ft: 0}"
  echo "$target: ${executions:-0} executions in $seconds s, $edges edges, $features features, ${peak:-?} MB at most"
  if [ "$code" -ne 0 ]; then
    result=1
    echo "$target: FINDING, see $log"
    grep -E '^SUMMARY|ERROR: |: runtime error:|Test unit written' "$log" | head -n 8 || true
    # The message of the target about the newest one.
    input=$(find "$findings" -type f -printf '%T@ %p\n' | sort -rn | head -n 1 | cut -d' ' -f2-)
    if [ -n "$input" ]; then
      timeout 60 "$build/test/fuzz/fuzz_$target" "${limits[@]}" "$input" 2>&1 </dev/null |
        grep -aE '^an? .*: |runtime error' | head -n 3 || true
    fi
  fi
done
exit "$result"
