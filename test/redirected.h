// Descriptors of this process sent elsewhere for a while.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "lockstep/base/error.h"

namespace lockstep {

// Sends a descriptor of this process to a file, which it appends to, while it lives.
class Redirected {
 public:
  Redirected(int descriptor, const std::string& path) : descriptor_(descriptor), before_(::dup(descriptor)) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    require(file >= 0 && before_ >= 0 && ::dup2(file, descriptor) >= 0, "{} cannot be redirected", descriptor);
    ::close(file);
  }
  ~Redirected() {
    ::dup2(before_, descriptor_);
    ::close(before_);
  }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;

 private:
  int descriptor_;
  int before_;
};

}  // namespace lockstep
