// Writes images, drawn at random, and the logits that a checkpoint's model computes of them:
//   logits_tool CHECKPOINT model|ema OUT.h5
#include <cstdio>
#include <string>
#include <vector>

#include "lockstep/base/cpu_cores.h"
#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/checkpoint/schema.h"
#include "lockstep/io/file.h"
#include "lockstep/train/config_load.h"
#include "lockstep/train/program.h"

using namespace lockstep;

namespace {

constexpr int64_t kImages = 3;

void run(const std::string& checkpoint, const std::string& group, const std::string& out) {
  const CheckpointReader file = CheckpointReader::open(checkpoint);
  const Config config = config_from_toml(file.config(), file.path());
  const auto backend = make_backend("cpu", {.threads = usable_cores(cpu_cores())});
  const auto stream = backend->make_stream();
  const Program program(config, {.training = 2, .evaluation = kImages}, Purpose::evaluate, *backend, *stream);
  for (const ParameterId id : match_schema(program.parameters(), file, {.group = group})) {
    file.read(array_path(group, program.parameters()[id].name), program.parameter(id));
  }
  const int64_t size = config.model.image_size;
  std::vector<float> images(static_cast<size_t>(kImages * 3 * size * size));
  for (size_t i = 0; i < images.size(); ++i) images[i] = static_cast<float>(2 * random_unit_double(1, i) - 1);
  const std::vector<int32_t> labels(kImages, 0);
  const std::vector<float> weights(kImages, 1.0F);
  const std::vector<int32_t> step(4, 0);

  const Executable& e = program.evaluation();
  Arenas arenas = program.evaluation_arenas(Weights::raw);
  arenas.external = {images.data(), labels.data(), weights.data(), step.data()};
  e.forward(*stream, arenas);
  stream->wait();
  const ValueId id = e.graph().losses.front().logits;
  const int64_t classes = e.graph().value(id).desc.shape[1];
  const std::span logits(static_cast<const float*>(e.address(id, arenas)), static_cast<size_t>(kImages * classes));

  auto result = Hdf5File::create_in_memory(out, {.blame = ExitCode::checkpoint});
  result.write<float>("/images", std::vector<int64_t>{kImages, 3, size, size}, images);
  result.write<float>("/logits", std::vector<int64_t>{kImages, classes}, logits);
  write_file_atomically(out, std::move(result).finish().bytes(), {.blame = ExitCode::checkpoint});
}

}  // namespace

int main(int argc, char** argv) {
  try {
    require(argc == 4, "usage: logits_tool CHECKPOINT model|ema OUT.h5");
    run(argv[1], std::string("/") + argv[2], argv[3]);
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
