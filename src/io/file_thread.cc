#include "lockstep/io/file_thread.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "lockstep/base/thread_name.h"

namespace lockstep {
namespace {

std::atomic<int> threads_left_behind{0};

}  // namespace

FileThread::FileThread(const char* name, std::function<void()> run) {
  std::promise<void> end;
  ended_ = end.get_future();
  thread_ = std::thread([name, run = std::move(run), end = std::move(end)]() mutable {
    name_thread(name);
    run();
    run = nullptr;  // destroys what it owns before others see that it has ended
    end.set_value();
  });
}

FileThread::~FileThread() {
  if (thread_.joinable()) join_within(0);
}

bool FileThread::join_within(double seconds) {
  if (!thread_.joinable()) return true;
  if (ended_.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready) {
    thread_.join();
    return true;
  }
  ++threads_left_behind;
  thread_.detach();
  return false;
}

int FileThread::left_behind() noexcept { return threads_left_behind.load(); }

}  // namespace lockstep
