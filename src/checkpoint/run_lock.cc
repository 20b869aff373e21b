#include "lockstep/checkpoint/run_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
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

// The kernel's start time of a process; empty: no such process, or one that has ended and waits for its parent to
// notice (a zombie: as long as it likes after a kill of the launcher).
std::string start_of_process(const std::string& pid) {
  const auto status = process_status("/proc/" + pid);
  return !status || status->state == 'Z' || status->state == 'X' ? std::string() : status->start_time;
}

// Says in which numbering of processes a pid holds: a boot of a machine, and a container on it.
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

// What a lock file says.
struct Owner {
  std::string host;
  std::string pid;
  std::string started;
  std::string space;
  std::string heartbeat;
};

std::string name_of(const Owner& owner) {
  if (owner.pid.empty()) return "an unknown process (the lock file is incomplete)";
  return fmt::format("process {} on {}", owner.pid, printable(owner.host, kLongestHost));
}

std::string identity_of(const Owner& owner) {
  return fmt::format("host {}\npid {}\nstarted {}\nspace {}\n", owner.host, owner.pid, owner.started, owner.space);
}

// Of one length always, since it is overwritten in place.
std::string heartbeat_line(int64_t beats) { return fmt::format("heartbeat {:012}\n", beats); }

Owner this_process() {
  const std::string pid = std::to_string(::getpid());
  return {.host = host_name(), .pid = pid, .started = start_of_process(pid), .space = process_space(), .heartbeat = {}};
}

// Fields are empty where the file lacks them (it may have been caught half written), and where a process number is
// none: it becomes part of a path.
Owner parse_owner(const std::string& text) {
  Owner owner;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    const size_t space = line.find(' ');
    if (space == std::string::npos) continue;
    const std::string key = line.substr(0, space);
    const std::string value = line.substr(space + 1);
    if (key == "host") owner.host = value;
    if (key == "pid" && parse_number<uint32_t>(value)) owner.pid = value;
    if (key == "started") owner.started = value;
    if (key == "space") owner.space = value;
    if (key == "heartbeat") owner.heartbeat = value;
  }
  return owner;
}

// Whether a run can have written the text, or its beginning: a crash or a full disk may have left less, or zeros.
bool is_lock_text(std::string_view text) {
  constexpr std::array<std::string_view, 5> kKeys = {"host ", "pid ", "started ", "space ", "heartbeat "};
  text = text.substr(0, text.find_last_not_of('\0') + 1);
  for (const std::string_view key : kKeys) {
    if (text.size() < key.size()) return key.starts_with(text);
    if (!text.starts_with(key)) return false;
    const size_t end = text.find('\n');
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return text.empty();
}

// The beginning of the file, which is all of a lock file; nothing when it has gone.
std::optional<std::string> read_lock(const std::string& path) {
  constexpr int64_t kMostBytes = 1 << 16;
  try {
    const FileDescriptor file = open_regular_file(path, kBlame);  // a pipe would be waited for
    std::string text(static_cast<size_t>(std::min(file_size(file, path, kBlame), kMostBytes)), '\0');
    pread_all(file, std::as_writable_bytes(std::span(text)), {.path = path, .blame = kBlame});
    return text;
  } catch (const Error&) {
    if (!path_exists(path)) return std::nullopt;
    throw;
  }
}

enum class Life { alive, dead, unknown };

// Whether the owner lives, where this process can see it.
Life life_of(const Owner& owner, const Owner& self) {
  if (owner.pid.empty() || owner.space != self.space) return Life::unknown;
  return start_of_process(owner.pid) == owner.started && !owner.started.empty() ? Life::alive : Life::dead;
}

// Watches the file until its heartbeat changes (false) or has not changed for stale_seconds (true). No clock of
// another machine is believed.
bool heartbeat_stands_still(const std::string& path, const std::string& text, const RunLockOptions& options) {
  const double end = monotonic_seconds() + options.stale_seconds;
  while (monotonic_seconds() < end) {
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(0.2, options.stale_seconds / 10)));
    const std::optional<std::string> now = read_lock(path);
    if (!now || *now != text) return false;
  }
  return true;
}

[[noreturn]] void fail_owned(const std::string& path, const Owner& owner) {
  fail(ExitCode::config,
       "{}: the directory belongs to a running job, {}; stop it or choose another "
       "checkpoint.directory",
       path, name_of(owner));
}

[[noreturn]] void fail_no_lock(const std::string& path) {
  fail(ExitCode::config,
       "{}: was not written by a run, so it is unknown whether one uses this directory; delete the file if none does, "
       "or "
       "choose another checkpoint.directory",
       path);
}

// Moves a dead owner's file out of the way. Another process may have done so and made its own since `text` was read;
// then that one is put back and false returned. Throws Error(checkpoint) where it cannot be moved.
bool remove_dead(const std::string& path, const std::string& text) {
  const std::string aside = fmt::format("{}.{}.{}", path, host_name(), ::getpid());
  if (::rename(path.c_str(), aside.c_str()) != 0) {
    if (errno == ENOENT) return true;
    fail(kBlame, "{}: its owner is not running any more, but the lock cannot be taken over: {}; delete the file", path,
         errno_text(errno));
  }
  const bool same = read_lock(aside) == text;
  if (!same && ::link(aside.c_str(), path.c_str()) != 0) {
    log_warning("{}: cannot be put back: {}", path, errno_text(errno));
  }
  remove_file(aside);
  return same;
}

}  // namespace

// Owned by the lock and by its thread, whichever ends last.
class RunLock::Keeper {
 public:
  Keeper(const std::string& directory, const RunLockOptions& options)
      : path_(directory + "/run.lock"), options_(options), identity_(identity_of(this_process())) {
    make_directories(directory, kBlame);
    acquire();
  }

  // Writes heartbeats until stop() is called, then deletes the file if it is still ours.
  void run();
  void stop();
  bool held() const;
  const std::string& path() const { return path_; }

 private:
  void acquire();
  bool try_create();
  bool refresh();  // one heartbeat; false: the file is another's
  bool make_again();
  bool refresh_or_log();

  const std::string path_;
  const RunLockOptions options_;
  const std::string identity_;  // all of the file but its heartbeat
  int64_t beats_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  bool held_ = true;
};

RunLock::RunLock(const std::string& directory, const RunLockOptions& options)
    : keeper_(make_keeper(directory, options)), thread_("run lock", [keeper = keeper_] { keeper->run(); }) {}

std::shared_ptr<RunLock::Keeper> RunLock::make_keeper(const std::string& directory, const RunLockOptions& options) {
  return std::make_shared<Keeper>(directory, options);
}

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

bool RunLock::Keeper::held() const {
  std::lock_guard lock(mutex_);
  return held_;
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

void RunLock::Keeper::acquire() {
  const Owner self = this_process();
  while (!try_create()) {
    const std::optional<std::string> text = read_lock(path_);
    if (!text) continue;                            // just released
    if (!is_lock_text(*text)) fail_no_lock(path_);  // nobody's heartbeat would come
    const Owner owner = parse_owner(*text);
    const Life life = life_of(owner, self);
    if (life == Life::alive) fail_owned(path_, owner);
    if (life == Life::unknown) {
      log_info("{}: waiting for a heartbeat of {}, {:.0f} s at most", path_, name_of(owner), options_.stale_seconds);
      if (!heartbeat_stands_still(path_, *text, options_)) {
        const std::optional<std::string> now = read_lock(path_);
        if (now && !parse_owner(*now).heartbeat.empty()) fail_owned(path_, parse_owner(*now));
        continue;
      }
    }
    if (remove_dead(path_, *text)) {
      log_warning("{}: taken over from {}, which {}", path_, name_of(owner),
                  life == Life::dead ? "is dead" : "shows no sign of life");
    }
  }
}

// Somebody deleted or moved the file, or all of the directory.
bool RunLock::Keeper::make_again() {
  make_directories(parent_directory(path_), kBlame);
  return try_create();
}

bool RunLock::Keeper::refresh() {
  const FileDescriptor file(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) {
    if (errno == ENOENT) return make_again();
    fail(kBlame, "{}: cannot open: {}", path_, errno_text(errno));
  }
  // Checked and written through one descriptor: a file that comes to the path in between is not touched.
  std::string found(identity_.size(), '\0');
  if (::pread(file.get(), found.data(), found.size(), 0) < 0) fail(kBlame, "{}: {}", path_, errno_text(errno));
  if (found != identity_) return false;
  const std::string line = heartbeat_line(++beats_);
  if (::pwrite(file.get(), line.data(), line.size(), static_cast<off_t>(identity_.size())) < 0) {
    fail(kBlame, "{}: cannot write: {}", path_, errno_text(errno));
  }
  return true;
}

void RunLock::Keeper::run() {
  std::unique_lock lock(mutex_);
  const auto interval = std::chrono::duration<double>(options_.heartbeat_seconds);
  while (!changed_.wait_for(lock, interval, [&] { return stop_; })) {
    lock.unlock();
    const bool ours = refresh_or_log();
    lock.lock();
    if (ours) continue;
    held_ = false;
    log_error("{}: another run has taken over this directory", path_);
    return;
  }
  lock.unlock();
  if (path_exists(path_) && refresh_or_log()) remove_file(path_);
}

bool RunLock::Keeper::refresh_or_log() {
  try {
    return refresh();
  } catch (const Error& error) {
    log_warning("{}", error.what());  // a full disk or a server that is away: the next beat may succeed
  } catch (const std::exception& error) {
    log_warning("{}: no heartbeat: {}", path_, error.what());
  }
  return true;
}

}  // namespace lockstep
