// A process that may write no file for a while, as under a quota.
#pragma once

#include <sys/resource.h>

#include <csignal>

namespace lockstep::testing {

class NoFiles {
 public:
  explicit NoFiles(bool here) {
    getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit none{.rlim_cur = here ? 0 : before_.rlim_cur, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
  }
  ~NoFiles() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  NoFiles(const NoFiles&) = delete;
  NoFiles& operator=(const NoFiles&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

}  // namespace lockstep::testing
