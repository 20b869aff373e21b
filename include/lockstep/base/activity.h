// What the threads of this process are busy with, for the report of a process that makes no progress. Process-wide, as
// the log is.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// One thread's entry in that list. Owned by the thread that it is about; what `what` uses must live until end(), or the
// next begin(), has returned.
class Activity {
 public:
  // `who` names the kind of thread, "loader thread", and must live as long.
  explicit Activity(std::string_view who);
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  // From now on the thread is busy with what `what` describes. It is called by another thread, and only when somebody
  // asks, so that it costs nothing else; it must not block.
  void begin(std::function<std::string()> what);
  void end();

 private:
  friend std::vector<std::string> describe_activities(double at_least_seconds);

  const std::string_view who_;
  std::mutex mutex_;
  std::function<std::string()> what_;  // empty: nothing
  double since_ = 0;
};

// "loader thread: train-00001-of-00004 record 17 (offset 123), for 61.2 s", the longest first, of those that have
// lasted for `at_least_seconds`. Any thread.
std::vector<std::string> describe_activities(double at_least_seconds = 0);

}  // namespace lockstep
