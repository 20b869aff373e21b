// The error of an allocation that needs more memory than there is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/error.h"

namespace lockstep {

class OutOfMemory : public Error {
 public:
  // `kind`: "memory", "GPU memory". `available_bytes`: -1 if unknown.
  OutOfMemory(const char* kind, size_t bytes, int64_t available_bytes)
      : Error(ExitCode::config,
              fmt::format("cannot allocate {} bytes of {}{}: lower train.batch_size or model.image_size", bytes, kind,
                          available_bytes < 0 ? std::string() : fmt::format(", {} are available", available_bytes))),
        kind_(kind),
        available_bytes_(available_bytes) {}
  const char* kind() const { return kind_; }
  int64_t available_bytes() const { return available_bytes_; }

 private:
  const char* kind_;
  int64_t available_bytes_;
};

}  // namespace lockstep
