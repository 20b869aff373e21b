// What tests share that run on every rank.
#pragma once

#include <optional>
#include <string>

#include "lockstep/comm/group/agreement.h"
#include "test/mpi_main.h"
#include "test/scratch.h"

namespace lockstep {

// One fresh directory for all ranks; rank 0 removes it. Collective, at its end too.
class SharedDirectory {
 public:
  SharedDirectory() {
    ProcessGroup& world = testing::world();
    if (world.is_root()) own_.emplace();
    path_ = world.broadcast(own_ ? own_->path() : std::string(), {"the scratch directory"});
  }
  SharedDirectory(const SharedDirectory&) = delete;
  SharedDirectory& operator=(const SharedDirectory&) = delete;
  ~SharedDirectory() {
    try {
      testing::world().barrier({"the end of the scratch directory"});
    } catch (const Error&) {  // another rank has failed; its test says so
    }
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::optional<ScratchDirectory> own_;
  std::string path_;
};

// The AgreedError that `call` throws; nothing when it throws none.
template <class Call>
std::optional<Error> agreed_error_of(const Call& call) {
  try {
    call();
    return std::nullopt;
  } catch (const AgreedError& error) {
    return error;
  }
}

}  // namespace lockstep
