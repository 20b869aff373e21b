#include "lockstep/checkpoint/run_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/log.h"
#include "lockstep/base/parse_number.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/proc.h"
#include "lockstep/io/file.h"

namespace lockstep {
namespace {

constexpr ExitCode kBlame = ExitCode::checkpoint;
constexpr size_t kLongestHost = 64;  // HOST_NAME_MAX

// Returns the kernel's start time of a process. Empty: there is no such process, or only a zombie, which may remain for
// a long time if its launcher was killed.
std::string start_of_process(const std::string& pid) {
  const auto status = process_status("/proc/" + pid);
  return !status || status->state == 'Z' || status->state == 'X' ? std::string() : status->start_time;
}

// Returns where process numbers are unique: a boot of a machine, and a container on it.
std::string process_space() {
  std::error_code none;
  const std::string boot = read_system_file("/proc/sys/kernel/random/boot_id").value_or("");
  return boot.substr(0, boot.find('\n')) + "/" + std::filesystem::read_symlink("/proc/self/ns/pid", none).string();
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// The contents of a lock file.
struct Owner {
  std::string host, pid, started, space, heartbeat;

  std::string name() const {
    if (pid.empty()) return "an unknown process (the lock file is incomplete)";
    return fmt::format("process {} on {}", pid, printable(host, kLongestHost));
  }
};

// Returns all of this process's lock file but its heartbeat.
std::string own_identity() {
  const std::string pid = std::to_string(::getpid());
  return fmt::format("host {}\npid {}\nstarted {}\nspace {}\n", host_name(), pid, start_of_process(pid),
                     process_space());
}

// All heartbeats have the same length, because they are overwritten in place.
std::string heartbeat_line(int64_t beats) { return fmt::format("heartbeat {:012}\n", beats); }

// Returns nothing if no run can have written this text. A crash, a full disk or a reader that was early may have left
// only its beginning, or zeros; the fields that are missing are empty then.
std::optional<Owner> parse_owner(std::string_view text) {
  using Field = std::pair<std::string_view, std::string Owner::*>;
  constexpr std::array kFields = {Field{"host ", &Owner::host}, Field{"pid ", &Owner::pid},
                                  Field{"started ", &Owner::started}, Field{"space ", &Owner::space},
                                  Field{"heartbeat ", &Owner::heartbeat}};
  Owner owner;
  text = text.substr(0, text.find_last_not_of('\0') + 1);
  for (const auto& [key, member] : kFields) {
    if (text.size() < key.size() && key.starts_with(text)) return owner;
    if (!text.starts_with(key)) return std::nullopt;
    const size_t end = std::min(text.find('\n'), text.size());
    owner.*member = text.substr(key.size(), end - key.size());
    if (key == "pid " && !parse_number<uint32_t>(owner.pid)) owner.pid.clear();  // it becomes part of a path
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return text.empty() ? std::optional(owner) : std::nullopt;
}

// Returns the text of the lock file, or nothing if there is none.
std::optional<std::string> read_lock(const std::string& path) {
  constexpr int64_t kMostBytes = 1 << 16;
  try {
    const FileDescriptor file = open_regular_file(path, kBlame);  // it might be a pipe, which would block
    std::string text(std::min(file_size(file, path, kBlame), kMostBytes), '\0');
    pread_all(file, std::as_writable_bytes(std::span(text)), {.path = path, .blame = kBlame});
    return text;
  } catch (const Error&) {
    if (!path_exists(path)) return std::nullopt;
    throw;
  }
}

[[noreturn]] void fail_owned(const std::string& path, const Owner& owner) {
  fail(ExitCode::config,
       "{}: the directory belongs to a running job, {}; stop it or choose another checkpoint.directory", path,
       owner.name());
}

// Waits until the lock file changes, for at most stale_seconds. Returns whether it did not. A clock of another machine
// is not trusted, so only the change of the heartbeat counts.
bool stays_unchanged(const std::string& path, const std::string& text, const RunLockOptions& options) {
  const double end = monotonic_seconds() + options.stale_seconds;
  while (monotonic_seconds() < end) {
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(0.2, options.stale_seconds / 10)));
    if (read_lock(path) != text) return false;
  }
  return true;
}

// Moves a dead owner's file out of the way. Another process may have done so since `text` was read, and have created
// its own file; that one is put back. Throws Error(checkpoint) if the file cannot be moved.
void remove_dead(const std::string& path, const std::string& text, const std::string& reason) {
  const std::string aside = fmt::format("{}.{}.{}", path, host_name(), ::getpid());
  if (::rename(path.c_str(), aside.c_str()) == 0) {
    const bool same = read_lock(aside) == text;
    if (!same && ::link(aside.c_str(), path.c_str()) != 0) {
      log_warning("{}: cannot be put back: {}", path, errno_text(errno));
    }
    remove_file(aside);
    if (!same) return;
  } else if (errno != ENOENT) {
    fail(kBlame, "{}: its owner is not running any more, but the lock cannot be taken over: {}; delete the file", path,
         errno_text(errno));
  }
  log_warning("{}: taken over from {}", path, reason);
}

}  // namespace

// Shared by the lock and its thread, because either may end last.
class RunLock::Keeper {
 public:
  Keeper(const std::string& directory, const RunLockOptions& options)
      : path_(directory + "/run.lock"), options_(options), identity_(own_identity()) {
    make_directories(directory, kBlame);
    while (!try_create()) take_over_or_fail();
  }

  // Writes heartbeats until stop() is called, then deletes the file if it is still ours.
  void run();
  void stop();
  bool held() const { return held_; }
  const std::string& path() const { return path_; }

 private:
  bool try_create();
  void take_over_or_fail();
  bool beat();
  bool beat_or_log();

  const std::string path_;
  const RunLockOptions options_;
  const std::string identity_;
  int64_t beats_ = 0;
  std::atomic<bool> held_ = true;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
};

RunLock::RunLock(const std::string& directory, const RunLockOptions& options)
    : keeper_(std::make_shared<Keeper>(directory, options)),
      thread_("run lock", [keeper = keeper_] { keeper->run(); }) {}

RunLock::~RunLock() {
  constexpr double kReleaseSeconds = 5;
  keeper_->stop();
  if (thread_.join_within(FileThread::patience(kReleaseSeconds))) return;
  log_warning("{}: is not deleted, the disk does not answer; the next run takes it over", keeper_->path());
}

bool RunLock::held() const { return keeper_->held(); }

void RunLock::Keeper::stop() {
  std::lock_guard lock(mutex_);
  stop_ = true;
  changed_.notify_all();
}

bool RunLock::Keeper::try_create() {
  const FileDescriptor file = create_file(path_, kBlame);
  if (!file) return false;
  const std::string text = identity_ + heartbeat_line(beats_);
  try {
    write_all(file, std::as_bytes(std::span(text)), path_, kBlame);
  } catch (...) {
    remove_file(path_);
    throw;
  }
  return true;
}

// Removes the lock file if its owner is dead. It may have gone or changed meanwhile, so the caller must try again.
void RunLock::Keeper::take_over_or_fail() {
  const std::optional<std::string> text = read_lock(path_);
  if (!text) return;
  const std::optional<Owner> owner = parse_owner(*text);
  if (!owner) {
    fail(ExitCode::config,
         "{}: was not written by a run, so it is unknown whether one uses this directory; delete the file if none "
         "does, or choose another checkpoint.directory",
         path_);
  }
  if (!owner->pid.empty() && owner->space == process_space()) {
    if (!owner->started.empty() && start_of_process(owner->pid) == owner->started) fail_owned(path_, *owner);
    return remove_dead(path_, *text, owner->name() + ", which is dead");
  }
  log_info("{}: waiting for a heartbeat of {}, {:.0f} s at most", path_, owner->name(), options_.stale_seconds);
  if (stays_unchanged(path_, *text, options_)) {
    return remove_dead(path_, *text, owner->name() + ", which shows no sign of life");
  }
  const std::optional<Owner> now = parse_owner(read_lock(path_).value_or(""));
  if (now && !now->heartbeat.empty()) fail_owned(path_, *now);
}

// Writes one heartbeat. Returns false if the file belongs to another run. If the file or its directory was deleted or
// moved, both are created again.
bool RunLock::Keeper::beat() {
  const FileDescriptor file(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) {
    if (errno != ENOENT) fail(kBlame, "{}: cannot open: {}", path_, errno_text(errno));
    make_directories(parent_directory(path_), kBlame);
    return try_create();
  }
  // The file is checked and written through one descriptor, so that a file that replaces it meanwhile is not touched.
  std::string found(identity_.size(), '\0');
  if (::pread(file.get(), found.data(), found.size(), 0) < 0) fail(kBlame, "{}: {}", path_, errno_text(errno));
  if (found != identity_) return false;
  const std::string line = heartbeat_line(++beats_);
  if (::pwrite(file.get(), line.data(), line.size(), identity_.size()) < 0) {
    fail(kBlame, "{}: cannot write: {}", path_, errno_text(errno));
  }
  return true;
}

// If the disk is full or a file server does not answer, the next heartbeat may succeed, so an error is only logged.
bool RunLock::Keeper::beat_or_log() {
  try {
    return beat();
  } catch (const std::exception& error) {
    log_warning("{}", error.what());
    return true;
  }
}

void RunLock::Keeper::run() {
  std::unique_lock lock(mutex_);
  const auto interval = std::chrono::duration<double>(options_.heartbeat_seconds);
  while (!changed_.wait_for(lock, interval, [&] { return stop_; })) {
    lock.unlock();
    held_ = beat_or_log();
    if (!held_) {
      log_error("{}: another run has taken over this directory", path_);
      return;
    }
    lock.lock();
  }
  lock.unlock();
  if (path_exists(path_) && beat_or_log()) remove_file(path_);
}

}  // namespace lockstep
