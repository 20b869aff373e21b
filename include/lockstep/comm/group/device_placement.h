// Which GPU each rank uses: a rule that every rank applies by itself, and the agreement of all ranks that it holds.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/comm/group/process_group.h"

namespace lockstep {

// A rank among those that share a host's memory, and how many GPUs its process sees there.
struct LocalPlace {
  int local_rank = 0;
  int visible_devices = 0;
};

// The number of the device among the visible ones, in turn by local rank. Where the launcher has given every rank its
// own devices (CUDA_VISIBLE_DEVICES), each counts its own from 0.
int device_of(const LocalPlace& place);

// What one rank tells the others about its GPU.
struct RankDevice {
  std::string rank;  // for messages: "rank 3@node7"
  std::string host;
  std::string reason;  // "no usable GPU: ..."; empty: it has one
  std::string id;      // the device's UUID
};

enum class DeviceKind : uint8_t { cpu, gpu };

// Where all ranks compute: on GPUs if all of them can, on CPUs if none can and no GPU is required (device.kind = "auto"
// rather than "gpu"). Throws Error(config) that names a rank and its reason otherwise: a job of which a part
// computes on CPUs would run at their pace.
DeviceKind agree_on_kind(bool gpu_required, std::span<const RankDevice> ranks);

// Whether ranks share a device. Throws Error(config) when two do and `share` is false, with the ranks and the key.
bool devices_are_shared(std::span<const RankDevice> ranks, bool share);

// What every rank tells, by rank; collective.
std::vector<RankDevice> gather_devices(ProcessGroup& group, const RankDevice& mine, const Timeout& wait);

}  // namespace lockstep
