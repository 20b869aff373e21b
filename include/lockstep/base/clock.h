// Time: a monotonic clock for durations, ISO 8601 and log-line forms of the wall clock.
#pragma once

#include <chrono>
#include <string>

namespace lockstep {

// Seconds since an arbitrary fixed point; never goes back.
inline double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Processor seconds that the calling thread has used, in the kernel too.
double thread_cpu_seconds();

// "2026-11-27T21:43:10Z"
std::string iso8601_utc_now();

// "2026-11-27 21:43:10.123456", local time: the prefix of the training log line.
std::string log_timestamp_now();

}  // namespace lockstep
