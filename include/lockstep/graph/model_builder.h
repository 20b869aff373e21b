// The interface for model authors: layers by name, parameters with torchvision's names, losses.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/graph/graph.h"

namespace lockstep {

// The options of a model function. `training` adds batch statistics, dropout and the auxiliary head.
struct ModelOptions {
  int64_t batch_size = 1;  // of this rank
  int64_t image_size = 299;
  int64_t classes = 1000;
  bool training = true;
  double aux_weight = 0;
  double dropout = 0;
  double label_smoothing = 0;
  double bn_epsilon = 1e-3;
  bool bn_scale = true;
  bool mixed_7c_max_pool = false;              // inception_v3, see build_inception_v3()
  std::vector<int64_t> hidden;                 // wide_mlp: widths
  int64_t vocabulary = 1;                      // wide_mlp: ids are below this
  int64_t max_ids = 1;                         // wide_mlp: most ids of a sample
  std::vector<std::string> freeze;             // patterns of parameters that are not trained (names_parameter)
  std::vector<std::string> freeze_batch_norm;  // patterns of batch norms with frozen statistics
  std::string definition;                      // model file: its text
  std::string definition_path;                 // model file: its name in messages
  DType dtype = DType::f32;
};

// Builds one graph. Used by one thread; finish() returns the graph.
class ModelBuilder {
 public:
  explicit ModelBuilder(const ModelOptions& options);

  const ModelOptions& options() const { return options_; }
  ValueId images();
  const Shape& shape(ValueId value) const { return graph_.value(value).desc.shape; }

  struct Conv {
    int64_t channels = 0;
    Window window;
    bool bias = false;
    double deviation = 0.1;  // of the truncated normal that its weights start from
    int64_t groups = 1;
  };
  // Parameters <name>.weight (, <name>.bias).
  ValueId conv(ValueId x, const std::string& name, const Conv& conv);
  // Parameters <name>.weight (trained with bn_scale, otherwise fixed at 1), .bias, .running_mean, .running_var. A batch
  // norm without trained parameters, or that freeze_batch_norm names, normalizes with its running statistics and keeps
  // them. Without `epsilon`: options().bn_epsilon.
  ValueId batch_norm(ValueId x, const std::string& name, std::optional<double> epsilon = {});
  // torchvision's BasicConv2d: <name>.conv, <name>.bn, ReLU.
  ValueId conv_norm_relu(ValueId x, const std::string& name, const Conv& conv);
  ValueId relu(ValueId x, const std::string& name, bool six = false);
  ValueId add(ValueId x, ValueId y, const std::string& name);
  ValueId max_pool(ValueId x, const std::string& name, const Window& window);
  ValueId avg_pool(ValueId x, const std::string& name, const Window& window, bool count_include_pad = true);
  ValueId global_avg_pool(ValueId x, const std::string& name);
  ValueId local_response_norm(ValueId x, const std::string& name, const LocalResponseNorm& op);
  ValueId concat(const std::vector<ValueId>& members, const std::string& name);
  ValueId flatten(ValueId x, const std::string& name);  // [N,C,H,W] -> [N,C*H*W]
  // Does nothing if the rate, by default options().dropout, is 0, or outside training.
  ValueId dropout(ValueId x, const std::string& name, std::optional<double> rate = {});
  struct Dense {
    int64_t outputs = 0;
    double deviation = 0.1;
    std::optional<double> bias = 0;  // its initial value; nullopt: no bias
  };
  // Parameters <name>.weight (, <name>.bias).
  ValueId linear(ValueId x, const std::string& name, const Dense& dense);
  struct Embedding {
    int64_t vocabulary = 0;
    int64_t width = 0;
    double deviation = 0.1;
  };
  // [N,width] from the ids and values of sparse samples. Parameters <name>.weight [vocabulary,width], <name>.bias.
  ValueId embedding_sum(const std::string& name, const Embedding& embedding);
  // Adds softmax cross-entropy of these logits, with the given weight, to the trained loss. The first head is the main
  // one, which evaluation reports.
  void loss(ValueId logits, const std::string& name, double weight);

  // Throws Error(config) if a pattern of the options matches nothing, or if nothing is left to train.
  Graph finish() &&;

 private:
  void check_patterns() const;
  ValueId parameter(const std::string& name, Shape shape, ParameterKind kind, Initializer init, bool frozen = false);
  ValueId one(const std::string& name, Op op, std::vector<ValueId> inputs);

  ModelOptions options_;
  Graph graph_;
  ValueId images_ = -1;  // created on first use
  ValueId labels_, weights_, step_;
};

}  // namespace lockstep
