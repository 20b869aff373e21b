// A whole checkpoint, as resume, evaluation and inspect read it. Read as it is, and sealed: with the header that the
// bytes behind it ought to have.
#include "lockstep/checkpoint/checkpoint.h"

#include <vector>

#include "checkpoint/header.h"
#include "lockstep/checkpoint/inspect.h"
#include "lockstep/config/load.h"
#include "test/fuzz/targets.h"

namespace lockstep::fuzz {
namespace {

constexpr int64_t kElementsRead = 1 << 20;

void read_all(const CheckpointReader& file) {
  for (const CheckpointReader::Array& array : file.arrays("/")) {
    if (array.shape.elements() > kElementsRead) continue;  // a reader of weights knows the shape it wants
    std::vector<float> values(static_cast<size_t>(array.shape.elements()));
    expect_answer([&] { file.read(array.path, values); });
  }
  expect_answer([&] { config_from_toml(file.config(), file.path()); });
  expect_answer([&] { file.classes(); });
  expect_answer([&] { file.training(); });
  expect_answer([&] { file.optimizer_slots(); });
}

void read(Bytes bytes) {
  const MemoryFile file(bytes);
  expect_answer([&] { read_all(CheckpointReader::open(file.path())); });
  expect_answer([&] { require_printable(inspect_checkpoint(file.path(), true).text); });
}

}  // namespace

void checkpoint(Bytes input) {
  read(input);
  if (input.size() <= kUserBlockBytes) return;
  std::vector<std::byte> sealed(input.begin(), input.end());
  seal_checkpoint(sealed, 7);
  read(sealed);
}

}  // namespace lockstep::fuzz
