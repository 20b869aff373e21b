// Writes images, or ids and values, drawn at random, and the logits that a checkpoint's model computes of them:
//   logits_tool CHECKPOINT model|ema OUT.h5
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "lockstep/base/cpu_cores.h"
#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/checkpoint/schema.h"
#include "lockstep/config/load.h"
#include "lockstep/io/file.h"
#include "lockstep/train/compiled_model.h"

using namespace lockstep;

namespace {

constexpr int64_t kSamples = 3;

// What the model is given.
struct Inputs {
  int64_t size = 0, max_ids = 0;
  std::vector<float> images, values;
  std::vector<int32_t> ids;  // -1 after the last of a sample
};

Inputs draw(const Config& config) {
  Inputs in{.size = config.model.image_size, .max_ids = config.model.max_ids};
  if (config.model.name != "wide_mlp") {
    in.images.resize(static_cast<size_t>(kSamples * 3 * in.size * in.size));
    for (size_t i = 0; i < in.images.size(); ++i) in.images[i] = static_cast<float>(2 * random_unit_double(1, i) - 1);
    return in;
  }
  in.values.assign(static_cast<size_t>(kSamples * in.max_ids), 5);  // of no account where there is no id
  in.ids.assign(in.values.size(), -1);
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    for (int64_t l = 0; l < std::min(in.max_ids, 2 * sample); ++l) {  // none in the first
      const auto i = static_cast<size_t>(sample * in.max_ids + l);
      in.ids[i] = static_cast<int32_t>(random_unit_double(1, 2 * i) * static_cast<double>(config.model.vocabulary));
      in.values[i] = static_cast<float>(2 * random_unit_double(1, 2 * i + 1) - 1);
    }
  }
  return in;
}

void run(const std::string& checkpoint, const std::string& group, const std::string& out) {
  const CheckpointReader file = CheckpointReader::open(checkpoint);
  const Config config = config_from_toml(file.config(), file.path());
  const auto backend = make_backend("cpu", {.threads = usable_cores(cpu_cores())});
  const auto stream = backend->make_stream();
  const CompiledModel model(config, {.training = 2, .evaluation = kSamples}, Purpose::evaluate, *backend, *stream);
  for (const ParameterId id : match_schema(model.parameters(), file, {.group = group})) {
    file.read(array_path(group, model.parameters()[id].name), model.parameter(id));
  }
  Inputs in = draw(config);
  const std::vector<int32_t> labels(kSamples, 0);
  const std::vector<float> weights(kSamples, 1.0F);

  const Executable& e = model.evaluation();
  Arenas arenas = model.evaluation_arenas(Weights::raw);
  arenas.external = {.images = in.images.data(),
                     .labels = labels.data(),
                     .weights = weights.data(),
                     .ids = in.ids.data(),
                     .values = in.values.data()};
  e.forward(*stream, arenas);
  stream->wait();
  const ValueId id = e.graph().losses.front().logits;
  const int64_t classes = e.graph().value(id).desc.shape[1];
  const std::span logits(static_cast<const float*>(e.address(id, arenas)), static_cast<size_t>(kSamples * classes));

  auto result = Hdf5File::create_in_memory(out, {.blame = ExitCode::checkpoint});
  if (in.ids.empty()) {
    result.write<float>("/images", std::vector<int64_t>{kSamples, 3, in.size, in.size}, in.images);
  } else {
    result.write<int32_t>("/ids", std::vector<int64_t>{kSamples, in.max_ids}, in.ids);
    result.write<float>("/values", std::vector<int64_t>{kSamples, in.max_ids}, in.values);
  }
  result.write<float>("/logits", std::vector<int64_t>{kSamples, classes}, logits);
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
