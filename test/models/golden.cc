#include "test/models/golden.h"

#include <hdf5.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "lockstep/backend/update.h"
#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/config/model_info.h"
#include "lockstep/graph/moments.h"
#include "lockstep/io/hdf5.h"
#include "lockstep/models/models.h"
#include "test/graph/net.h"

namespace lockstep::test {
namespace {

constexpr int kHead = 4;  // elements of each tensor that the lists quote

// ---- reading

template <class T>
T needed(const std::optional<T>& attribute, const std::string& name) {
  require(attribute.has_value(), "the golden file has no attribute \"{}\"", name);
  return *attribute;
}

// The case's settings that are no whole numbers, which the program itself never reads from an attribute.
double number_of_case(const std::string& path, const std::string& name) {
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_file_locking(access, false, true);  // as the program has it open
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, access);
  H5Pclose(access);
  const hid_t attribute = H5Aopen_by_name(file, "/case", name.c_str(), H5P_DEFAULT, H5P_DEFAULT);
  double value = 0;
  const bool read = H5Aread(attribute, H5T_NATIVE_DOUBLE, &value) >= 0;
  H5Aclose(attribute);
  H5Fclose(file);
  require(read, "{} has no number \"{}\"", path, name);
  return value;
}

GoldenValues read_values(const Hdf5File& file, const std::string& group) {
  GoldenValues values;
  for (const char* part : {"eval", "train"}) {
    for (const auto& entry : file.list(group + "/" + part)) {
      const Hdf5Dataset data = file.dataset(group + "/" + part + "/" + entry.name);
      if (data.info().type != Hdf5Type::string) values[std::string(part) + "/" + entry.name] = data.read<double>();
    }
  }
  return values;
}

// ---- the generator (test/golden/README.md)

double uniform(const std::string& name, int64_t i) {
  return 2 * static_cast<double>(random_unit_float(fnv1a64(name), static_cast<uint64_t>(i))) - 1;
}

double parameter_scale(const Parameter& p) {
  const auto fan_in = static_cast<double>(p.shape.elements() / p.shape[0]);
  switch (p.kind) {
    case ParameterKind::weight:
      return p.shape.rank() == 4 ? std::sqrt(3.0) * std::sqrt(2.0 / fan_in) : std::sqrt(3.0 / fan_in);
    case ParameterKind::norm_scale:
      return 0.2;
    case ParameterKind::running_var:
      return 0.5;
    default:
      return 0.1;
  }
}

double parameter_value(const GoldenCase& golden, const Parameter& p, int64_t i) {
  if (!golden.weights.empty()) return golden.weights.at(p.name).at(static_cast<size_t>(i));
  const bool around_one = p.kind == ParameterKind::norm_scale || p.kind == ParameterKind::running_var;
  return static_cast<float>((around_one ? 1 : 0) + parameter_scale(p) * uniform(golden.salt + p.name, i));
}

// What multiplies the gradients of this graph: 1, or for one in f16 what set_inputs gives it.
double loss_scale(const Graph& graph) {
  constexpr double kOfHalfPrecision = 1024;
  const bool scaled =
      std::ranges::any_of(graph.values, [](const Value& v) { return v.external == ExternalInput::loss_scale; });
  return scaled ? kOfHalfPrecision : 1;
}

void set_inputs(Net& net, const GoldenCase& golden) {
  const ModelOptions& o = golden.options;
  std::vector<double> images(static_cast<size_t>(o.batch_size * 3 * o.image_size * o.image_size));
  for (size_t i = 0; i < images.size(); ++i) images[i] = uniform(golden.salt + "input", static_cast<int64_t>(i));
  std::vector<double> labels(static_cast<size_t>(o.batch_size));
  for (size_t n = 0; n < labels.size(); ++n) {
    labels[n] = static_cast<double>(random_bits(fnv1a64(golden.salt + "label"), n) % static_cast<uint64_t>(o.classes));
  }
  net.set(ExternalInput::images, images);
  net.set(ExternalInput::labels, labels);
  net.set(ExternalInput::weights, std::vector<double>(labels.size(), 1.0));
  if (const double scale = loss_scale(net.graph()); scale != 1) net.set(ExternalInput::loss_scale, {&scale, 1});
}

// ---- the step

// The update of every batch norm's running statistics.
ApplyStatistics statistics_of(const Net& net) {
  ApplyStatistics op{.momentum = 0.1};
  const auto offset = [&](ParameterId id) { return net.executable().layout().offset[static_cast<size_t>(id)]; };
  for (const NormMoments& norm : moments_of(net.graph())) {
    op.entries.push_back({offset(norm.mean), offset(norm.var), norm.channels, norm.spatial});
  }
  return op;
}

void take_step(Net& net, const Backend& backend, const GoldenCase& golden) {
  std::vector<double> values(kUpdateScalars);
  const auto samples = static_cast<double>(golden.options.batch_size);
  values[kLearningRate] = golden.learning_rate;
  values[kGradientScale] = 1 / (samples * loss_scale(net.graph()));
  values[kSampleCount] = samples;
  const Buffer scalars = backend.allocate(values.size() * dtype_bytes(net.dtype()));
  net.write(scalars.data(), net.dtype(), values);

  ModelState& state = net.state();
  const ApplyOptimizer sgd{
      .kind = OptimizerKind::sgd, .momentum = 0, .segments = {{0, state.trained_elements, golden.weight_decay}}};
  net.update({net.dtype(), sgd}, {state.gradients.data(), scalars.data()},
             {state.parameters.data(), state.slots[0].data()});
  if (state.moment_elements == 0) return;
  const void* moments =
      state.gradients.as<char>() + state.trained_elements * static_cast<int64_t>(dtype_bytes(net.dtype()));
  net.update({net.dtype(), statistics_of(net)}, {moments, scalars.data()}, {state.statistics.data()});
}

std::vector<double> evaluate(const GoldenCase& golden, const Net& trained) {
  ModelOptions options = golden.options;
  options.dtype = trained.dtype();
  options.training = false;
  options.aux_weight = 0;
  Net eval(trained, build_model(golden.model, options));
  set_inputs(eval, golden);
  eval.forward();
  return eval.value(eval.graph().losses[0].logits);
}

// Appends norm and first elements of one tensor to the lists `what`_norm<suffix> and `what`_head<suffix>.
void append_row(GoldenValues& values, const std::string& what, const std::string& suffix,
                const std::vector<double>& tensor) {
  double squares = 0;
  for (double x : tensor) squares += x * x;
  values["train/" + what + "_norm" + suffix].push_back(std::sqrt(squares));
  auto& head = values["train/" + what + "_head" + suffix];
  for (size_t i = 0; i < kHead; ++i) head.push_back(tensor[i % tensor.size()]);
}

// ---- errors

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

// Errors of the rows of a list, of which `norms` tells the whole tensors' sizes and `elements` their element counts.
std::vector<double> row_errors(const std::vector<double>& values, const std::vector<double>& exact,
                               const std::vector<double>& norms, const std::vector<double>& elements) {
  require(values.size() == exact.size(), "a list of {} values against one of {}", values.size(), exact.size());
  const size_t width = exact.size() / norms.size();
  std::vector<double> errors;
  for (size_t row = 0; row < norms.size(); ++row) {
    double difference = 0, size = 0;
    for (size_t i = row * width; i < (row + 1) * width; ++i) {
      difference += (values[i] - exact[i]) * (values[i] - exact[i]);
      size += exact[i] * exact[i];
    }
    errors.push_back(std::sqrt(difference) / std::max(std::sqrt(size), 1e-3 * norms[row] / std::sqrt(elements[row])));
  }
  return errors;
}

std::vector<double> element_counts(const GoldenCase& golden, const std::vector<std::string>& names) {
  const ParameterTable& table = build_model(golden.model, golden.options).parameters;
  std::vector<double> counts;
  for (const std::string& name : names) {
    const ParameterId id = table.find(name);
    require(id >= 0, "the model has no parameter \"{}\"", name);
    counts.push_back(static_cast<double>(table[id].shape.elements()));
  }
  return counts;
}

}  // namespace

std::string golden_path(const std::string& file_name) {
  const char* elsewhere = std::getenv("LOCKSTEP_GOLDEN_DIR");  // when the test runs on another machine
  return fmt::format("{}/{}", elsewhere ? elsewhere : LOCKSTEP_GOLDEN_DIR, file_name);
}

GoldenCase read_golden(const std::string& file_name) {
  const std::string path = golden_path(file_name);
  const auto file = Hdf5File::open(path, ExitCode::internal);
  auto integer = [&](const std::string& name) { return needed(file.integer_attribute("/case", name), name); };
  auto number = [&](const std::string& name) { return number_of_case(path, name); };
  auto text = [&](const std::string& name) { return needed(file.string_attribute("/case", name), name); };
  GoldenCase golden{.model = text("model"),
                    .salt = text("salt"),
                    .options = {.batch_size = integer("batch"),
                                .image_size = integer("image_size"),
                                .classes = integer("classes"),
                                .aux_weight = number("aux_weight"),
                                .label_smoothing = number("label_smoothing"),
                                .bn_epsilon = model_info(text("model")).norm_epsilon},
                    .learning_rate = number("lr"),
                    .weight_decay = number("weight_decay")};
  golden.parameters = file.dataset("/train/names").read_strings();
  if (file.exists("/train/buffers")) golden.buffers = file.dataset("/train/buffers").read_strings();
  golden.exact = read_values(file, "");
  if (!file.exists("/peer_float32")) return golden;
  for (const auto& variant : file.list("/peer_float32")) {
    golden.peers[variant.name] = read_values(file, "/peer_float32/" + variant.name);
  }
  return golden;
}

GoldenValues compute_golden(const GoldenCase& golden, const Backend& backend, DType dtype, DType compute) {
  ModelOptions options = golden.options;
  options.dtype = dtype;
  Net train(backend, build_model(golden.model, options), {.compute = compute});
  train.fill_parameters([&](const Parameter& p, int64_t i) { return parameter_value(golden, p, i); });
  GoldenValues values;
  values["eval/logits"] = evaluate(golden, train);

  set_inputs(train, golden);
  train.forward();
  train.backward();
  const auto samples = static_cast<double>(golden.options.batch_size);
  const auto& heads = train.graph().losses;
  values["train/loss"] = {train.loss() / samples};
  values["train/logits"] = train.value(heads[0].logits);
  if (heads.size() > 1) values["train/aux"] = train.value(heads[1].logits);
  const double gradient_scale = samples * loss_scale(train.graph());
  for (const std::string& name : golden.parameters) {
    std::vector<double> gradient = train.gradient(name);
    for (double& g : gradient) g /= gradient_scale;
    append_row(values, "grad", "", gradient);
  }
  take_step(train, backend, golden);
  for (const std::string& name : golden.parameters) append_row(values, "weight", "_after", train.parameter(name));
  for (const std::string& name : golden.buffers) append_row(values, "buffer", "_after", train.parameter(name));
  return values;
}

std::vector<double> evaluation_logits(const GoldenCase& golden, const Backend& backend, DType dtype) {
  ModelOptions options = golden.options;
  options.dtype = dtype;
  Net net(backend, build_model(golden.model, options), {});
  net.fill_parameters([&](const Parameter& p, int64_t i) { return parameter_value(golden, p, i); });
  return evaluate(golden, net);
}

std::map<std::string, double> golden_errors(const GoldenCase& golden, const GoldenValues& values) {
  std::map<std::string, double> errors;
  const std::vector<double> parameter_elements = element_counts(golden, golden.parameters);
  const std::vector<double> buffer_elements = element_counts(golden, golden.buffers);
  for (const auto& [name, exact] : golden.exact) {
    const auto found = values.find(name);
    require(found != values.end(), "{} was not computed", name);
    std::string norm_list = name;
    if (const size_t at = name.find("_head"); at != std::string::npos) norm_list.replace(at, 5, "_norm");
    if (norm_list.find("_norm") == std::string::npos) {
      errors[name] = relative_error(found->second, exact);
      continue;
    }
    const auto& elements = name.starts_with("train/buffer") ? buffer_elements : parameter_elements;
    const std::vector<double> rows = row_errors(found->second, exact, golden.exact.at(norm_list), elements);
    errors[name + ".median"] = median(rows);
    errors[name + ".largest"] = *std::max_element(rows.begin(), rows.end());
  }
  return errors;
}

}  // namespace lockstep::test
