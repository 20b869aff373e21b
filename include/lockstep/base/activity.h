// The present activities of the threads of this process, for the report of a process that makes no progress.
// Process-wide, like the log.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// One thread's entry in that list. Owned by the thread that it describes; whatever `what` uses must live until end(),
// or the next begin(), has returned.
class Activity {
 public:
  // `who` names the kind of thread, "loader thread", and must live as long.
  explicit Activity(std::string_view who);
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  // Declares that the thread is busy with what `what` describes. Another thread calls `what`, and only for a report, so
  // it costs nothing otherwise; it must not block.
  void begin(std::function<std::string()> what);
  void end();

 private:
  friend std::vector<std::string> describe_activities(double at_least_seconds);

  const std::string_view who_;
  std::mutex mutex_;
  std::function<std::string()> what_;  // empty: nothing
  double since_ = 0;
};

// "loader thread: train-00001-of-00004 record 17 (offset 123), for 61.2 s": returns a text for each activity that has
// lasted `at_least_seconds`, the longest first. Thread-safe.
std::vector<std::string> describe_activities(double at_least_seconds = 0);

}  // namespace lockstep
