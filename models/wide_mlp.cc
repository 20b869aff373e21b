// A network for sparse samples: the sum of the embeddings of a sample's ids, each times its value, is the first hidden
// layer; fully connected layers follow.
#include <fmt/format.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/models/models.h"

namespace lockstep {

void build_wide_mlp(ModelBuilder& b) {
  const ModelOptions& o = b.options();
  if (o.hidden.empty()) fail(ExitCode::config, "model.hidden is empty: wide_mlp needs at least one hidden layer");
  ValueId x = b.embedding_sum("hidden.0", {.vocabulary = o.vocabulary, .width = o.hidden[0]});
  x = b.relu(x, "hidden.0.relu");
  for (size_t i = 1; i < o.hidden.size(); ++i) {
    const std::string name = fmt::format("hidden.{}", i);
    const double deviation = std::sqrt(2.0 / static_cast<double>(o.hidden[i - 1]));  // He et al. 2015
    x = b.relu(b.linear(x, name, {.outputs = o.hidden[i], .deviation = deviation}), name + ".relu");
  }
  x = b.dropout(x, "dropout");
  const double deviation = std::sqrt(1.0 / static_cast<double>(o.hidden.back()));
  b.loss(b.linear(x, "output", {.outputs = o.classes, .deviation = deviation}), "loss", 1.0);
}

}  // namespace lockstep
