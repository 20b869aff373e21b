#include "lockstep/base/activity.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/clock.h"

namespace lockstep {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<Activity*> activities;
};

Registry& registry() {
  static Registry the_registry;
  return the_registry;
}

}  // namespace

Activity::Activity(std::string_view who) : who_(who) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.activities.push_back(this);
}

Activity::~Activity() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::erase(all.activities, this);
}

void Activity::begin(std::function<std::string()> what) {
  const std::lock_guard lock(mutex_);
  what_ = std::move(what);
  since_ = monotonic_seconds();
}

void Activity::end() {
  const std::lock_guard lock(mutex_);
  what_ = nullptr;
}

std::vector<std::string> describe_activities(double at_least_seconds) {
  std::vector<std::pair<double, std::string>> found;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const double now = monotonic_seconds();
  for (Activity* activity : all.activities) {
    const std::lock_guard one(activity->mutex_);
    const double seconds = now - activity->since_;
    if (!activity->what_ || seconds < at_least_seconds) continue;
    found.emplace_back(seconds, fmt::format("{}: {}, for {:.1f} s", activity->who_, activity->what_(), seconds));
  }
  std::ranges::sort(found, std::greater<>());
  std::vector<std::string> lines;
  for (auto& [seconds, line] : found) lines.push_back(std::move(line));
  return lines;
}

}  // namespace lockstep
