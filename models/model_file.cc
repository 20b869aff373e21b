// Builds a network that a TOML text defines (docs/model_files.md).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "lockstep/base/nearest_word.h"
#include "lockstep/base/split_words.h"
#include "lockstep/io/toml_limits.h"
#include "lockstep/models/models.h"
#include "models/layer_text.h"

namespace lockstep {
namespace {

constexpr size_t kMostLayers = 10'000;
constexpr double kMostElements = 2147483648.0;  // of a weight, and of one sample's output of a layer
constexpr int64_t kMostChannels = 65'536;
constexpr size_t kAnyNumber = 1024;  // of inputs
constexpr std::string_view kKeys[] = {"layer", "block", "classes", "image_size"};
constexpr std::string_view kConv = "channels kernel stride pad bias deviation groups";

struct Output {
  ValueId value = -1;
  bool trained = false;  // depends on weights
  bool only_training = false;
  bool used = false;              // by a layer that is in evaluation if this one is
  bool used_in_training = false;  // by a layer that is not in evaluation
  int line = 0;
};

class Drawing {
 public:
  explicit Drawing(ModelBuilder& b)
      : b_(b), path_(b.options().definition_path), globals_{{"classes", b.options().classes}} {}

  void draw() {
    const toml::table root = parse();
    for (const auto& [key, node] : root) {
      if (std::ranges::find(kKeys, key.str()) == std::end(kKeys)) {
        const std::string hint = did_you_mean(key.str(), {std::begin(kKeys), std::end(kKeys)});
        fail(ExitCode::config, "{}:{}: unknown key {}{}", path_, line_of(node), printable(key.str()),
             hint.empty() ? ": a model file has layer = [...], [block], classes and image_size" : hint);
      }
    }
    blocks_ = root["block"].as_table();
    if (root.contains("block") && !blocks_) refuse_list(*root.get("block"), "block is not a table of lists of layers");
    if (!root.contains("layer")) fail(ExitCode::config, "{}: there is no list of layers: layer = [...]", path_);
    draw_list(*root.get("layer"), {.prefix = "", .input = "images"});
    check_outputs();
  }

 private:
  using Inputs = std::vector<ValueId>;
  struct Operation {
    std::string_view name;
    std::string_view keys;  // without those that every layer has, separated by spaces
    int rank;               // of its inputs; 0: any
    size_t least_inputs, most_inputs;
    ValueId (Drawing::*draw)(const LayerText&, const Inputs&);
  };
  static std::span<const Operation> operations();

  toml::table parse() const {
    const std::string& text = b_.options().definition;
    require_bounded_toml(text, path_);
    try {
      return toml::parse(text, path_);
    } catch (const toml::parse_error& e) {
      fail(ExitCode::config, "{}:{}: not valid TOML: {}", path_, e.source().begin.line, printable(e.description()));
    }
  }

  [[noreturn]] void refuse_list(const toml::node& node, std::string_view what) const {
    fail(ExitCode::config, "{}:{}: {}", path_, line_of(node), what);
  }
  void draw_list(const toml::node& list, const LayerScope& scope) {
    const toml::array* entries = list.as_array();
    if (!entries || entries->empty()) refuse_list(list, "a list of layers is wanted, such as [{ op = \"relu\" }]");
    std::string previous = scope.input;
    for (const toml::node& entry : *entries) {
      const toml::table* table = entry.as_table();
      if (!table) refuse_list(entry, "a layer is a table, such as { op = \"relu\", name = \"relu1\" }");
      for (const std::string& name : names_of(*table, scope)) {
        const LayerText layer{*table, scope, globals_, path_, scope.prefix + name};
        if (layer.only_training() && !b_.options().training) {
          add_output(layer, {.used = true});
        } else if (table->contains("block")) {
          draw_block(layer, previous);
        } else {
          draw_layer(layer, previous);
        }
        previous = layer.name;
      }
    }
  }

  // Returns the value of `name`, or of `names`, which repeats the layer.
  std::vector<std::string> names_of(const toml::table& table, const LayerScope& scope) const {
    const LayerText unnamed{table, scope, globals_, path_, scope.prefix + "?"};
    std::vector<std::string> names;
    if (table.contains("name") == table.contains("names")) unnamed.refuse("it needs either name or names");
    const toml::node& node = *table.get(table.contains("name") ? "name" : "names");
    const toml::array* list = table.contains("names") ? node.as_array() : nullptr;
    if (table.contains("names") && (!list || list->empty())) unnamed.refuse("names is a list of strings");
    for (size_t i = 0; i < (list ? list->size() : 1); ++i) {
      const auto* text = (list ? list->get(i) : &node)->as_string();
      const auto usual = [](char c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; };
      if (!text || text->get().empty() || text->get().size() > kPrintedBytes ||
          !std::ranges::all_of(text->get(), [&](char c) {
            return usual(c) || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
          })) {
        unnamed.refuse("a name is a string of letters, digits, '_', '.' and '-'");
      }
      names.push_back(text->get());
    }
    return names;
  }

  void draw_block(const LayerText& layer, const std::string& previous) {
    const auto* which = layer.table.get("block")->as_string();
    if (layer.scope.arguments) layer.refuse("a block contains no blocks");
    const toml::node* list = which && blocks_ ? blocks_->get(which->get()) : nullptr;
    if (!list) {
      std::vector<std::string> known;
      for (const auto& [key, node] : blocks_ ? *blocks_ : toml::table()) known.emplace_back(key.str());
      layer.refuse("there is no block {}{}", which ? printable(which->get()) : "of this name",
                   did_you_mean(which ? which->get() : "", known));
    }
    std::vector<std::string> known = {"block", "name", "names", "input", "only"};
    for (const toml::node& entry : list->is_array() ? *list->as_array() : toml::array()) {
      for (const auto& [key, node] : entry.is_table() ? *entry.as_table() : toml::table()) {
        const auto* text = node.as_string();
        if (text && text->get().starts_with('$')) known.push_back(text->get().substr(1));
      }
    }
    layer.check_keys(known);
    const std::vector<std::string> input = inputs_of(layer, previous);
    if (input.size() != 1) layer.refuse("a block has one input");
    const LayerScope inner{.prefix = layer.name + ".",
                           .input = input.front(),
                           .arguments = &layer.table,
                           .only_training = layer.only_training()};
    draw_list(*list, inner);
    add_output(layer, outputs_.at(last_));
    outputs_.at(last_of_block_).used = true;  // the name of the block stands for it
  }

  void draw_layer(const LayerText& layer, const std::string& previous) {
    const auto* op = layer.table.contains("op") ? layer.table.get("op")->as_string() : nullptr;
    const auto all = operations();
    const auto row = std::ranges::find(all, op ? std::string_view(op->get()) : "", &Operation::name);
    if (row == all.end()) {
      std::vector<std::string> known;
      for (const Operation& o : all) known.emplace_back(o.name);
      if (!op) layer.refuse("it needs op, one of {}", fmt::join(known, ", "));
      const std::string nearest = did_you_mean(op->get(), known);
      layer.refuse("unknown op {}{}", printable(op->get()),
                   nearest.empty() ? fmt::format("; there are {}", fmt::join(known, ", ")) : nearest);
    }
    const std::vector<std::string_view> own = split_words(row->keys, ' ');
    std::vector<std::string> known(own.begin(), own.end());
    for (const char* key : {"op", "name", "names", "only"}) known.emplace_back(key);
    known.emplace_back(row->most_inputs > 1 ? "inputs" : "input");
    layer.check_keys(known);
    const std::vector<std::string> names = inputs_of(layer, previous);
    if (names.size() < row->least_inputs || names.size() > row->most_inputs) {
      layer.refuse("{} takes {}{} inputs, not {}", row->name, row->least_inputs == row->most_inputs ? "" : "at least ",
                   row->least_inputs, names.size());
    }
    require_free(layer);
    if (row->draw == &Drawing::conv_norm_relu) {
      for (const LayerText& part : parts_of(layer)) require_free(part);
    }
    Inputs inputs;
    trained_ = row->keys == kConv || row->draw == &Drawing::batch_norm || row->draw == &Drawing::linear;
    for (const std::string& name : names) inputs.push_back(read(layer, *row, name));
    ValueId value = -1;
    try {
      value = (this->*row->draw)(layer, inputs);
    } catch (const Error& e) {
      if (e.code() != ExitCode::config || std::string_view(e.what()).starts_with(path_ + ":")) throw;
      fail(ExitCode::config, "{}:{}: layer {}", path_, line_of(layer.table), e.what());
    }
    if (value < 0) return add_output(layer, {.used = true});
    double elements = 1;
    for (int d = 1; d < b_.shape(value).rank(); ++d) elements *= static_cast<double>(b_.shape(value)[d]);
    if (elements > kMostElements) layer.refuse("its output is too large: {}", b_.shape(value).to_string());
    if (row->draw == &Drawing::conv_norm_relu) {
      for (const LayerText& part : parts_of(layer)) add_output(part, {.used = true});
    }
    add_output(layer, {.value = value, .trained = trained_});
  }

  // Returns the full names of the outputs that a layer reads: by default, that of the layer before it.
  std::vector<std::string> inputs_of(const LayerText& layer, const std::string& previous) const {
    const toml::node* node = layer.table.get(layer.table.contains("inputs") ? "inputs" : "input");
    if (!node) return {previous};
    const toml::array* list = node->as_array();
    std::vector<std::string> names;
    for (size_t i = 0; i < (list ? list->size() : 1); ++i) {
      const auto* text = (list ? list->get(i) : node)->as_string();
      if (!text) layer.refuse("its inputs are names of layers above it");
      const bool of_block = layer.scope.arguments && text->get() == "input";
      const bool images = !layer.scope.arguments && text->get() == "images";
      names.push_back(of_block ? layer.scope.input : images ? "images" : layer.scope.prefix + text->get());
    }
    return names;
  }

  ValueId read(const LayerText& layer, const Operation& op, const std::string& name) {
    if (name == "images" && !outputs_.contains(name)) outputs_[name] = {.value = b_.images(), .used = true};
    const auto found = outputs_.find(name);
    if (found == outputs_.end()) {
      std::vector<std::string> known;
      for (const auto& [other, output] : outputs_) known.push_back(other);
      layer.refuse("its input {} is no layer above it{}", printable(name), did_you_mean(name, known));
    }
    Output& input = found->second;
    if (input.only_training && !layer.only_training()) {
      layer.refuse("its input {} has only = \"training\": set that here as well, or name another input", name);
    }
    if (input.value < 0) layer.refuse("its input {} has no output to read", name);
    (layer.only_training() && !input.only_training ? input.used_in_training : input.used) = true;
    trained_ |= input.trained;
    const Shape& shape = b_.shape(input.value);
    if (op.rank != 0 && shape.rank() != op.rank) {
      layer.refuse("{} takes an input {}, and {} has the shape {}{}", op.name, op.rank == 4 ? "[N,C,H,W]" : "[N,C]",
                   name, shape.to_string(), op.rank == 2 ? ": put a flatten between them" : "");
    }
    return input.value;
  }

  // Returns the layers of which conv_norm_relu consists. Their names must be unused as well.
  std::vector<LayerText> parts_of(const LayerText& layer) const {
    std::vector<LayerText> parts;
    for (const char* part : {".conv", ".bn", ".relu"}) {
      parts.push_back({layer.table, layer.scope, globals_, path_, layer.name + part});
    }
    return parts;
  }

  void require_free(const LayerText& layer) const {
    if (layer.name == "images" || outputs_.contains(layer.name)) layer.refuse("this name is taken");
  }

  void add_output(const LayerText& layer, Output output) {
    require_free(layer);
    output.line = line_of(layer.table);
    output.only_training |= layer.only_training();
    outputs_.emplace(layer.name, output);
    if (outputs_.size() > kMostLayers) layer.refuse("there are more than {} layers", kMostLayers);
    last_of_block_ = last_;
    last_ = layer.name;
  }

  void check_outputs() const {
    for (const auto& [name, output] : outputs_) {
      if (!output.used) {
        fail(ExitCode::config, "{}:{}: layer {}: {}", path_, output.line, name,
             output.used_in_training ? "only layers with only = \"training\" read its output: set that here as well"
                                     : "no layer reads its output, and it is no loss");
      }
    }
    if (!has_loss_) fail(ExitCode::config, "{}: evaluation has no loss: each has only = \"training\"", path_);
  }

  ModelBuilder::Conv convolution(const LayerText& layer, ValueId x) const {
    ModelBuilder::Conv conv{.channels = layer.integer("channels", 1, kMostChannels), .window = layer.window(1)};
    if (layer.find("groups")) conv.groups = layer.integer("groups", 1, kMostChannels);
    if (b_.shape(x).c() % conv.groups != 0 || conv.channels % conv.groups != 0) {
      layer.refuse("{} groups do not divide its {} input and {} output channels", conv.groups, b_.shape(x).c(),
                   conv.channels);
    }
    const int64_t area = conv.window.kernel_h * conv.window.kernel_w, inputs = b_.shape(x).c() / conv.groups * area;
    require_weight(layer, inputs, conv.channels);
    conv.deviation = layer.deviation(inputs, conv.channels * area);
    conv.bias = layer.flag("bias");
    return conv;
  }

  void require_weight(const LayerText& layer, int64_t inputs, int64_t outputs) const {
    if (static_cast<double>(inputs) * static_cast<double>(outputs) > kMostElements) {
      layer.refuse("its weight is too large: {} x {} elements", outputs, inputs);
    }
  }

  ValueId conv(const LayerText& l, const Inputs& x) { return b_.conv(x[0], l.name, convolution(l, x[0])); }
  ValueId conv_norm_relu(const LayerText& l, const Inputs& x) {
    return b_.conv_norm_relu(x[0], l.name, convolution(l, x[0]));
  }
  ValueId batch_norm(const LayerText& l, const Inputs& x) {
    const double epsilon = l.number("epsilon", b_.options().bn_epsilon);
    if (epsilon <= 0) l.refuse("epsilon is above 0");
    return b_.batch_norm(x[0], l.name, epsilon);
  }
  ValueId relu(const LayerText& l, const Inputs& x) { return b_.relu(x[0], l.name); }
  ValueId relu6(const LayerText& l, const Inputs& x) { return b_.relu(x[0], l.name, true); }
  ValueId add(const LayerText& l, const Inputs& x) { return b_.add(x[0], x[1], l.name); }
  ValueId concat(const LayerText& l, const Inputs& x) { return b_.concat(x, l.name); }
  Window pool(const LayerText& l, ValueId x) const {
    const Window w = l.window({});
    const Shape& s = b_.shape(x);
    const bool rest =
        (s.h() + 2 * w.pad_h - w.kernel_h) % w.stride_h != 0 || (s.w() + 2 * w.pad_w - w.kernel_w) % w.stride_w != 0;
    if (l.flag("ceil_mode") && rest) {
      l.refuse(
          "ceil_mode would add a window beyond the edge of its input {}, which cannot be computed; choose another "
          "model.image_size",
          s.to_string());
    }
    return w;
  }
  ValueId max_pool(const LayerText& l, const Inputs& x) { return b_.max_pool(x[0], l.name, pool(l, x[0])); }
  ValueId avg_pool(const LayerText& l, const Inputs& x) {
    return b_.avg_pool(x[0], l.name, pool(l, x[0]), l.flag("count_include_pad", true));
  }
  ValueId global_avg_pool(const LayerText& l, const Inputs& x) { return b_.global_avg_pool(x[0], l.name); }
  ValueId flatten(const LayerText& l, const Inputs& x) { return b_.flatten(x[0], l.name); }
  ValueId dropout(const LayerText& l, const Inputs& x) {
    const double rate = l.number("rate", b_.options().dropout);
    if (rate < 0 || rate >= 1) l.refuse("rate is 0 or more, and below 1");
    return b_.dropout(x[0], l.name, rate);
  }
  ValueId local_response_norm(const LayerText& l, const Inputs& x) {
    LocalResponseNorm norm{.size = l.integer("size", 1, kMostChannels)};
    if (norm.size % 2 == 0) l.refuse("size is odd");
    norm.alpha = l.number("alpha", norm.alpha);
    norm.beta = l.number("beta", norm.beta);
    norm.k = l.number("k", norm.k);
    if (norm.alpha < 0 || norm.beta < 0 || norm.k <= 0) l.refuse("alpha and beta are 0 or more, and k is above 0");
    return b_.local_response_norm(x[0], l.name, norm);
  }
  ValueId linear(const LayerText& l, const Inputs& x) {
    const int64_t inputs = b_.shape(x[0])[1], outputs = l.integer("outputs", 1, 1'000'000);
    require_weight(l, inputs, outputs);
    ModelBuilder::Dense dense{.outputs = outputs, .deviation = l.deviation(inputs, outputs), .bias = {}};
    const toml::node* bias = l.find("bias");
    if (!bias || bias->value_exact<bool>() != false) dense.bias = l.number("bias", 0);
    return b_.linear(x[0], l.name, dense);
  }
  ValueId loss(const LayerText& l, const Inputs& x) {
    const int64_t outputs = b_.shape(x[0])[1];
    if (!trained_) l.refuse("its input depends on no weights");
    if (outputs != b_.options().classes) {
      l.refuse("its input has {} outputs, and model.classes = {}: use outputs = \"$classes\"", outputs,
               b_.options().classes);
    }
    const double weight = l.number("weight", 1);
    if (weight <= 0) l.refuse("weight is above 0");
    if (l.only_training() && !has_loss_) l.refuse("the first loss, which evaluation reports, has no only");
    has_loss_ = true;
    b_.loss(x[0], l.name, weight);
    return -1;
  }

  ModelBuilder& b_;
  const std::string& path_;
  const toml::table globals_;
  const toml::table* blocks_ = nullptr;
  std::map<std::string, Output, std::less<>> outputs_;  // by full name
  bool trained_ = false;                                // the layer that is being built depends on weights
  std::string last_, last_of_block_;                    // the output added most recently, and the one before it
  bool has_loss_ = false;
};

std::span<const Drawing::Operation> Drawing::operations() {
  static constexpr std::string_view kMaxPool = "kernel stride pad ceil_mode";
  static constexpr std::string_view kAvgPool = "kernel stride pad ceil_mode count_include_pad";
  static constexpr Operation kOperations[] = {
      {"conv", kConv, 4, 1, 1, &Drawing::conv},
      {"conv_norm_relu", kConv, 4, 1, 1, &Drawing::conv_norm_relu},
      {"batch_norm", "epsilon", 4, 1, 1, &Drawing::batch_norm},
      {"relu", "", 0, 1, 1, &Drawing::relu},
      {"relu6", "", 0, 1, 1, &Drawing::relu6},
      {"add", "", 0, 2, 2, &Drawing::add},
      {"concat", "", 4, 2, kAnyNumber, &Drawing::concat},
      {"max_pool", kMaxPool, 4, 1, 1, &Drawing::max_pool},
      {"avg_pool", kAvgPool, 4, 1, 1, &Drawing::avg_pool},
      {"global_avg_pool", "", 4, 1, 1, &Drawing::global_avg_pool},
      {"local_response_norm", "size alpha beta k", 4, 1, 1, &Drawing::local_response_norm},
      {"flatten", "", 4, 1, 1, &Drawing::flatten},
      {"dropout", "rate", 0, 1, 1, &Drawing::dropout},
      {"linear", "outputs bias deviation", 2, 1, 1, &Drawing::linear},
      {"loss", "weight", 2, 1, 1, &Drawing::loss},
  };
  return kOperations;
}

}  // namespace

void build_model_file(ModelBuilder& b) { Drawing(b).draw(); }

}  // namespace lockstep
