#include "lockstep/comm/group/device_placement.h"

#include "lockstep/base/error.h"
#include "test/catch.h"

using namespace lockstep;

namespace {

// What a rank would tell: the GPU that the rule gives it among those it sees.
RankDevice rank_with(int rank, const std::string& host, int local_rank, const std::vector<std::string>& visible) {
  RankDevice device{.rank = fmt::format("rank {}@{}", rank, host), .host = host};
  if (visible.empty()) {
    device.reason = "no usable GPU: the driver sees no device";
  } else {
    device.id = visible[static_cast<size_t>(
        device_of({.local_rank = local_rank, .visible_devices = static_cast<int>(visible.size())}))];
  }
  return device;
}

template <class Call>
Error config_error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::config);
    return error;
  }
  FAIL("nothing was thrown");
  throw;
}

}  // namespace

TEST_CASE("ranks of a host take its visible GPUs in turn") {
  struct Row {
    int ranks, devices;
    std::vector<int> expected;
  };
  const Row table[] = {
      {1, 1, {0}},          {1, 4, {0}},          {2, 2, {0, 1}},          {4, 8, {0, 1, 2, 3}},
      {4, 4, {0, 1, 2, 3}}, {4, 2, {0, 1, 0, 1}}, {5, 3, {0, 1, 2, 0, 1}}, {3, 1, {0, 0, 0}},
  };
  for (const Row& row : table) {
    std::vector<int> devices;
    for (int r = 0; r < row.ranks; ++r) {
      devices.push_back(device_of({.local_rank = r, .visible_devices = row.devices}));
    }
    INFO(row.ranks << " ranks on " << row.devices << " devices");
    CHECK(devices == row.expected);
  }
}

TEST_CASE("as many ranks a host as GPUs each have their own, on hosts of different size too") {
  const std::vector<std::string> big = {"GPU-a", "GPU-b", "GPU-c", "GPU-d"}, small = {"GPU-e", "GPU-f"};
  std::vector<RankDevice> ranks;
  for (int r = 0; r < 4; ++r) ranks.push_back(rank_with(r, "node1", r, big));
  for (int r = 0; r < 2; ++r) ranks.push_back(rank_with(4 + r, "node2", r, small));
  CHECK_FALSE(devices_are_shared(ranks, false));
  CHECK_FALSE(devices_are_shared(ranks, true));
}

TEST_CASE("a launcher that shows every rank one GPU of its own is understood") {
  const RankDevice apart[] = {rank_with(0, "n", 0, {"GPU-a"}), rank_with(1, "n", 1, {"GPU-b"})};
  CHECK_FALSE(devices_are_shared(apart, false));
  // CUDA_VISIBLE_DEVICES of pairs that overlap: local rank 1 of the second pair is GPU-c.
  const RankDevice pairs[] = {rank_with(0, "n", 0, {"GPU-a", "GPU-b"}), rank_with(1, "n", 1, {"GPU-b", "GPU-c"})};
  CHECK_FALSE(devices_are_shared(pairs, false));
}

TEST_CASE("two ranks on one GPU are refused with both ranks and the key, unless sharing is asked for") {
  const std::vector<std::string> visible = {"GPU-a", "GPU-b"};
  std::vector<RankDevice> ranks;
  for (int r = 0; r < 4; ++r) ranks.push_back(rank_with(r, "node7", r, visible));
  const Error error = config_error_of([&] { devices_are_shared(ranks, false); });
  CHECK_THAT(error.what(), ContainsSubstring("rank 0@node7 and rank 2@node7"));
  CHECK_THAT(error.what(), ContainsSubstring("GPU-a"));
  CHECK_THAT(error.what(), ContainsSubstring("device.share = true"));
  CHECK(devices_are_shared(ranks, true));
}

TEST_CASE("the same identifier on two hosts is two devices") {
  const RankDevice ranks[] = {rank_with(0, "node1", 0, {"GPU-a"}), rank_with(1, "node2", 0, {"GPU-a"})};
  CHECK_FALSE(devices_are_shared(ranks, false));
}

TEST_CASE("all ranks compute on GPUs or none does") {
  const RankDevice with = rank_with(0, "node1", 0, {"GPU-a"}), without = rank_with(1, "node2", 0, {});
  const RankDevice all[] = {with, with}, none[] = {without, without}, some[] = {with, without};
  CHECK(agree_on_kind(false, all) == DeviceKind::gpu);
  CHECK(agree_on_kind(true, all) == DeviceKind::gpu);
  CHECK(agree_on_kind(false, none) == DeviceKind::cpu);
  const Error insisted = config_error_of([&] { agree_on_kind(true, some); });
  CHECK_THAT(insisted.what(), ContainsSubstring("on rank 1@node2: no usable GPU: the driver sees no device"));
  const Error mixed = config_error_of([&] { agree_on_kind(false, some); });
  CHECK_THAT(mixed.what(), ContainsSubstring("rank 0@node1 has a GPU, but on rank 1@node2: no usable GPU"));
  CHECK_THAT(mixed.what(), ContainsSubstring("device.kind = \"cpu\""));
}
