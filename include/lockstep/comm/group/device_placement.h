// Assigns a GPU to each rank. Every rank applies the same rule locally; then all ranks verify that the result is
// usable.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/comm/group/process_group.h"

namespace lockstep {

// A rank's index among the ranks of its host, and the number of GPUs that its process sees.
struct LocalRankInfo {
  int local_rank = 0;
  int visible_devices = 0;
};

// Returns the index of the rank's device among the visible ones: local_rank modulo visible_devices. If the launcher
// gives every rank its own devices (CUDA_VISIBLE_DEVICES), each rank numbers its own from 0.
int device_of(const LocalRankInfo& rank);

// One rank's report to the others about its GPU.
struct RankDevice {
  std::string rank;  // for messages: "rank 3@node7"
  std::string host;
  std::string reason;  // why it has no usable GPU; empty if it has one
  std::string id;      // the device's UUID
};

enum class DeviceKind : uint8_t { cpu, gpu };

// Chooses the device kind of all ranks: GPUs if every rank has one, CPUs if no rank has one and no GPU is required
// (device.kind = "auto" rather than "gpu"). Otherwise throws Error(config) that names a rank and its reason, because a
// job with some ranks on CPUs would run at the speed of the CPUs.
DeviceKind agree_on_kind(bool gpu_required, std::span<const RankDevice> ranks);

// Returns whether two ranks share a device. If they do and `share` is false, throws Error(config) that names both ranks
// and the key device.share.
bool devices_are_shared(std::span<const RankDevice> ranks, bool share);

// Collective. Returns every rank's report, indexed by rank.
std::vector<RankDevice> gather_devices(ProcessGroup& group, const RankDevice& mine, const Timeout& wait);

}  // namespace lockstep
