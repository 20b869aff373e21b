// A thread for calls that a disk may hold up without end.
#pragma once

#include <functional>
#include <future>
#include <thread>

namespace lockstep {

// The kernel does not interrupt a call into a file system that does not answer, so a process can neither join such a
// thread nor end while it stands there: it can only leave it behind. Used by one thread.
class FileThread {
 public:
  // `run` must own what it uses (by shared_ptr), since the thread may outlive its creator.
  FileThread(const char* name, std::function<void()> run);
  ~FileThread();  // leaves the thread behind if it has not been joined
  FileThread(const FileThread&) = delete;
  FileThread& operator=(const FileThread&) = delete;

  // Joins the thread if it ends within that time. False: it is still running, and is left behind for good.
  bool join_within(double seconds);

  // How many threads of this process were left behind: above 0, leaving main would not end the process.
  static int left_behind() noexcept;

  // How long to wait for another one: `seconds`, or not at all once one was left behind, since the disk is the same.
  static double patience(double seconds) noexcept { return left_behind() > 0 ? 0 : seconds; }

 private:
  std::thread thread_;
  std::future<void> ended_;
};

}  // namespace lockstep
