#include "lockstep/base/clock.h"

#include <fmt/format.h>

#include <ctime>

namespace lockstep {
namespace {

struct Instant {
  std::time_t seconds;
  long microseconds;
};

Instant now() {
  std::timespec t{};
  std::timespec_get(&t, TIME_UTC);
  return {t.tv_sec, t.tv_nsec / 1000};
}

std::string format_tm(const std::tm& t, const char* form) {
  char text[32];
  const size_t size = std::strftime(text, sizeof text, form, &t);
  return {text, size};
}

}  // namespace

double thread_cpu_seconds() {
  std::timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

std::string iso8601_utc_now() {
  const Instant t = now();
  std::tm parts{};
  gmtime_r(&t.seconds, &parts);
  return format_tm(parts, "%Y-%m-%dT%H:%M:%SZ");
}

std::string log_timestamp_now() {
  const Instant t = now();
  std::tm parts{};
  localtime_r(&t.seconds, &parts);
  return fmt::format("{}.{:06}", format_tm(parts, "%Y-%m-%d %H:%M:%S"), t.microseconds);
}

}  // namespace lockstep
