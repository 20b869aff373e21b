// A stream whose work is always done, as on a CPU.
#pragma once

#include "lockstep/backend/backend.h"

namespace lockstep::testing {

struct IdleStream final : Stream {
  void wait() override {}
  void record(Event&) override {}
  void wait_for(const Event&) override {}
};

}  // namespace lockstep::testing
