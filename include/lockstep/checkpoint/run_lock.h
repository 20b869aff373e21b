// One directory belongs to one run: a lock file with the owner's host, process and a heartbeat. flock is not to be
// trusted on network file systems, so ownership is the file itself, made by exclusive creation.
#pragma once

#include <memory>
#include <string>

#include "lockstep/io/file_thread.h"

namespace lockstep {

struct RunLockOptions {
  double heartbeat_seconds = 10;
  double stale_seconds = 60;  // without a heartbeat for so long, the owner is taken for dead
};

// Holds the directory from construction to destruction, on rank 0. Thread-safe; its own thread writes the heartbeat,
// and makes directory and file again when somebody has deleted them.
class RunLock {
 public:
  // Makes the directory if need be. A lock whose owner is a dead process of this machine, or whose heartbeat is stale,
  // is taken over with a warning; where that takes watching the heartbeat, this waits up to stale_seconds. Throws
  // Error(config) naming host and process of a living owner, Error(checkpoint) when the directory cannot be written.
  explicit RunLock(const std::string& directory, const RunLockOptions& options = {});
  // Deletes the file if it is still ours; a disk that does not answer is given up after a few seconds, with a warning.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // False once another run has taken the directory over (this process was suspended for long, say): stop saving. Waits
  // for no disk.
  bool held() const;

 private:
  class Keeper;
  static std::shared_ptr<Keeper> make_keeper(const std::string& directory, const RunLockOptions& options);

  std::shared_ptr<Keeper> keeper_;
  FileThread thread_;
};

}  // namespace lockstep
