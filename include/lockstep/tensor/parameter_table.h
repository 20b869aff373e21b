// The names and shapes of a model's parameters and statistics: the schema of its checkpoint. It has no memory offsets;
// ParameterLayout has them once the schedule is known.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep {

enum class ParameterKind : uint8_t {
  weight,        // convolution or linear weights: initialized randomly, decayed
  bias,          // bias of a convolution or linear layer
  norm_scale,    // batch norm gamma
  norm_shift,    // batch norm beta
  fixed_scale,   // batch norm gamma that stays 1: not trained, in the checkpoint so that its names are complete
  running_mean,  // statistics: in the checkpoint, not trained
  running_var,
};

// The initial value that the model specifies for a parameter (see model.init).
struct Initializer {
  enum class Kind : uint8_t { constant, truncated_normal };
  Kind kind = Kind::constant;
  double value = 0;      // constant
  double deviation = 0;  // truncated_normal: standard deviation before truncation
  double bound = 2;      // truncated_normal: cut at +-bound * deviation
};

struct Parameter {
  std::string name;  // torchvision's state_dict name, e.g. "Mixed_5b.branch1x1.conv.weight"
  Shape shape;       // canonical: OIHW, [O,I] or [C]
  ParameterKind kind = ParameterKind::weight;
  Initializer init;
  bool frozen = false;     // keeps its initial value, although its kind is trained or follows the batches
  bool zero_rate = false;  // trained with a learning rate of 0
  bool trained() const { return kind <= ParameterKind::norm_shift && !frozen; }
  bool follows_batches() const { return kind >= ParameterKind::running_mean && !frozen; }
  bool is_norm_or_bias() const { return kind != ParameterKind::weight; }
};

using ParameterId = int32_t;

class ParameterTable {
 public:
  // Throws on a name that is already there.
  ParameterId add(Parameter parameter);
  void set_zero_rate(ParameterId id) { parameters_[static_cast<size_t>(id)].zero_rate = true; }
  int32_t size() const { return static_cast<int32_t>(parameters_.size()); }
  const Parameter& operator[](ParameterId id) const { return parameters_[id]; }
  std::span<const Parameter> all() const { return parameters_; }
  ParameterId find(const std::string& name) const;  // -1 when there is none
  int64_t trained_elements() const;
  int64_t frozen_elements() const;  // of parameters, without statistics

 private:
  std::vector<Parameter> parameters_;
  std::unordered_map<std::string, ParameterId> by_name_;
};

// Whether the pattern (* ? [set] as in glob(7), where * also matches dots) matches the name or that of a layer in it:
// "fc" and "f*" name fc.weight.
bool names_parameter(const std::string& pattern, const std::string& name);
bool names_parameter(std::span<const std::string> patterns, const std::string& name);

// Throws Error(config) with the nearest name if the pattern, an item of the configuration key `key`, matches none of
// `names`. `what` is a word for the things that have these names.
void require_named(const std::vector<std::string>& names, const std::string& pattern, std::string_view key,
                   std::string_view what);

// The offset of every parameter in the flat arenas. Trained parameters share one numbering of elements (parameters,
// gradients, optimizer slots, averages all use the same offsets); statistics have an arena of their own, in which those
// that follow the batches come first and share their numbering with the moments behind the gradients. Frozen parameters
// follow with the other constants.
struct ParameterLayout {
  std::vector<int64_t> offset;     // by ParameterId, in elements, within its arena
  int64_t trained_elements = 0;    // size of the trained arena, padding included
  int64_t statistic_elements = 0;  // size of the statistics arena, padding included
  int64_t moment_elements = 0;     // size of its part that follows the batches, padding included
};

// The trained parameters in the order of the table.
std::vector<ParameterId> trained_in_table_order(const ParameterTable& table);

// Lays trained parameters out in `order` (every trained id exactly once: the order in which gradients finish), each
// starting at a multiple of kParameterAlignment elements. `groups` lists ids that must be adjacent, without padding
// between them, as merged sibling convolutions require (a group is placed where its first member would be).
inline constexpr int64_t kParameterAlignment = 16;
ParameterLayout lay_out_parameters(const ParameterTable& table, std::span<const ParameterId> order,
                                   std::span<const std::vector<ParameterId>> groups = {});

}  // namespace lockstep
