// The definition of a network in a file, drawn for training and for evaluation.
#include "lockstep/models/models.h"
#include "test/fuzz/targets.h"

namespace lockstep::fuzz {

void model_file(Bytes input) {
  for (const bool training : {true, false}) {
    expect_answer([&] {
      ModelBuilder builder({.batch_size = 2,
                            .image_size = 32,
                            .classes = 10,
                            .training = training,
                            .dropout = 0.5,
                            .definition = std::string(as_text(input)),
                            .definition_path = "/runs/net.toml"});
      build_model_file(builder);
      const Graph graph = std::move(builder).finish();
      require_law(!graph.losses.empty(), "a network that is taken has a loss");
    });
  }
}

}  // namespace lockstep::fuzz
