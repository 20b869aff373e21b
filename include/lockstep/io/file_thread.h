// A thread for calls that a disk may hold up without end.
#pragma once

#include <functional>
#include <memory>
#include <thread>

namespace lockstep {

// Runs jobs one after another. The kernel does not interrupt a call into a file system that does not answer, so a
// process can neither join such a thread nor end while the thread is in that call: it can only leave it behind. Used by
// one thread.
class FileThread {
 public:
  explicit FileThread(const char* name);
  FileThread(const char* name, std::function<void()> job) : FileThread(name) { post(std::move(job)); }
  ~FileThread();  // joins the thread if no job waits or runs, otherwise leaves it behind
  FileThread(const FileThread&) = delete;
  FileThread& operator=(const FileThread&) = delete;

  // Runs the job after those posted before. The job must own what it uses (by shared_ptr), since the thread may outlive
  // its creator.
  void post(std::function<void()> job);

  // Returns whether all jobs have run and are destroyed, after at most that time.
  bool wait_idle(double seconds) const;

  // Lets the thread end after its jobs and joins it. Returns false if it does not end within that time; it is left
  // behind for good then.
  bool join_within(double seconds);

  // How many threads of this process were left behind: above 0, leaving main would not end the process.
  static int left_behind() noexcept;

  // How long to wait for another one: `seconds`, or not at all once one was left behind, since the disk is the same.
  static double patience(double seconds) noexcept { return left_behind() > 0 ? 0 : seconds; }

 private:
  struct Jobs;  // shared with the thread, because either may end last

  std::shared_ptr<Jobs> jobs_;
  std::thread thread_;
};

}  // namespace lockstep
