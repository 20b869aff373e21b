#include "test/graph/net.h"

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"

namespace lockstep::test {
namespace {

DType element_type(const Graph& graph) {
  for (const Value& v : graph.values) {
    if (v.role == ValueRole::external && v.external == ExternalInput::weights) return v.desc.dtype;
  }
  fail(ExitCode::internal, "a graph without sample weights");
}

Executable compile_adopted(const Net& trained, const Backend& backend, Graph graph, DType compute) {
  const ParameterLayout layout =
      adopt_layout(graph.parameters, trained.graph().parameters, trained.executable().layout());
  return Executable::compile(std::move(graph), backend, {.training = false, .compute = compute, .layout = &layout});
}

template <class T>
std::vector<double> to_doubles(const std::vector<std::byte>& bytes) {
  const auto* values = reinterpret_cast<const T*>(bytes.data());
  return {values, values + bytes.size() / sizeof(T)};
}

template <class T>
std::vector<std::byte> from_doubles(std::span<const double> values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  auto* to = reinterpret_cast<T*>(bytes.data());
  for (size_t i = 0; i < values.size(); ++i) to[i] = static_cast<T>(values[i]);
  return bytes;
}

}  // namespace

Net::Net(const Backend& backend, Graph graph, const CompileOptions& options)
    : backend_(backend),
      stream_(backend.make_stream()),
      executable_(Executable::compile(std::move(graph), backend, options)),
      compute_(options.compute),
      dtype_(element_type(executable_.graph())),
      state_(make_model_state(backend, *stream_, executable_.layout(),
                              {.dtype = dtype_,
                               .activation_bytes = static_cast<size_t>(executable_.plan().activation_bytes),
                               .copy_bytes = static_cast<size_t>(executable_.plan().copy_bytes)})) {
  arenas_ = {.parameters = state_.parameters.data(),
             .copies = state_.copies.data(),
             .statistics = state_.statistics.data(),
             .gradients = state_.gradients.data(),
             .activations = state_.activations.data()};
  bind_externals();
}

Net::Net(const Net& trained, Graph graph)
    : backend_(trained.backend_),
      stream_(trained.stream_),
      executable_(compile_adopted(trained, backend_, std::move(graph), trained.compute_)),
      compute_(trained.compute_),
      dtype_(trained.dtype_),
      arenas_(trained.arenas_) {
  state_.activations = backend_.allocate(static_cast<size_t>(executable_.plan().activation_bytes));
  arenas_.activations = state_.activations.data();
  bind_externals();
}

void Net::bind_externals() {
  for (const Value& v : graph().values) {
    if (v.role != ValueRole::external) continue;
    Buffer& buffer = externals_[v.external] = backend_.allocate(backend_.storage_bytes(v.desc));
    arenas_.external[v.external] = buffer.data();
  }
}

void* Net::parameter_address(ParameterId id) const {
  void* arena = graph().parameters[id].trained() ? arenas_.parameters : arenas_.statistics;
  return static_cast<char*>(arena) +
         executable_.layout().offset[static_cast<size_t>(id)] * static_cast<int64_t>(dtype_bytes(dtype_));
}

void Net::fill_parameters(const Fill& value) {
  for (ParameterId id = 0; id < graph().parameters.size(); ++id) {
    const Parameter& p = graph().parameters[id];
    std::vector<double> values(static_cast<size_t>(p.shape.elements()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = value(p, static_cast<int64_t>(i));
    write(parameter_address(id), dtype_, values);
  }
}

void Net::set(ExternalInput input, std::span<const double> values) {
  for (const Value& v : graph().values) {
    if (v.role != ValueRole::external || v.external != input) continue;
    require(static_cast<int64_t>(values.size()) == v.desc.shape.elements(), "{} holds {} values, not {}", v.name,
            v.desc.shape.to_string(), values.size());
    write(externals_.at(input).data(), v.desc.dtype, values);
  }
}

void Net::fill_at_random(uint64_t seed) {
  fill_parameters([&](const Parameter& p, int64_t i) {
    const double u = 2 * random_unit_double(random_key(seed, fnv1a64(p.name)), static_cast<uint64_t>(i)) - 1;
    if (p.kind == ParameterKind::running_var || p.kind == ParameterKind::norm_scale) return 1 + 0.3 * u;
    if (p.kind == ParameterKind::fixed_scale) return 1.0;
    if (p.kind != ParameterKind::weight) return 0.2 * u;
    return u * std::sqrt(6.0 / static_cast<double>(p.shape.elements() / p.shape[0]));
  });
  const auto vocabulary = [&]() -> uint64_t {
    for (const Node& node : graph().nodes) {
      if (std::holds_alternative<EmbeddingBag>(node.op))
        return static_cast<uint64_t>(graph().value(node.inputs[0]).desc.shape[0]);
    }
    return 1;
  }();
  for (const Value& v : graph().values) {
    if (v.role != ValueRole::external) continue;
    std::vector<double> values(static_cast<size_t>(v.desc.shape.elements()), 1.0);
    RandomStream random(random_key(seed, fnv1a64(v.name)));
    for (double& x : values) {
      if (v.external == ExternalInput::images) x = random.uniform(-1, 1);
      if (v.external == ExternalInput::ids) x = static_cast<double>(random.below(vocabulary));
      if (v.external == ExternalInput::labels) {
        x = static_cast<double>(
            random.below(static_cast<uint64_t>(graph().value(graph().losses[0].logits).desc.shape[1])));
      }
    }
    set(v.external, values);
  }
}

void Net::forward(const RankSum& sum) {
  executable_.copy_weights(*stream_, arenas_);
  executable_.forward(*stream_, arenas_, sum);
}

void Net::backward(const RankSum& sum) {
  executable_.backward(*stream_, arenas_, {}, sum);
  stream_->wait();
}

double Net::loss() const {
  double sum = 0;
  for (const LossHead& head : graph().losses) sum += head.weight * value(head.loss).front();
  return sum;
}

std::vector<double> Net::value(ValueId id) const {
  const TensorDesc& desc = graph().value(id).desc;
  return read(executable_.address(id, arenas_), desc.dtype, desc.shape.elements());
}

std::vector<double> Net::parameter(const std::string& name) const {
  const ParameterId id = graph().parameters.find(name);
  return read(parameter_address(id), dtype_, graph().parameters[id].shape.elements());
}

void Net::set_parameter(const std::string& name, std::span<const double> values) {
  write(parameter_address(graph().parameters.find(name)), dtype_, values);
}

std::vector<double> Net::gradient(const std::string& name) const {
  const ParameterId id = graph().parameters.find(name);
  const auto offset = executable_.layout().offset[static_cast<size_t>(id)] * static_cast<int64_t>(dtype_bytes(dtype_));
  return read(static_cast<const char*>(arenas_.gradients) + offset, dtype_, graph().parameters[id].shape.elements());
}

void Net::update(const UpdateOp& op, std::vector<const void*> inputs, std::vector<void*> outputs) {
  const auto kernel = backend_.compile(op);
  const Buffer workspace = backend_.allocate(kernel->workspace_bytes());
  std::vector<void*> in;
  for (const void* p : inputs) in.push_back(const_cast<void*>(p));  // KernelArgs knows no const; inputs are only read
  kernel->run({*stream_, in, outputs, workspace.data()});
  stream_->wait();
}

std::vector<double> Net::read(const void* from, DType type, int64_t count) const {
  std::vector<std::byte> bytes(static_cast<size_t>(count) * dtype_bytes(type));
  backend_.copy(*stream_, bytes.data(), from, bytes.size());
  stream_->wait();
  switch (type) {
    case DType::f32:
      return to_doubles<float>(bytes);
    case DType::f64:
      return to_doubles<double>(bytes);
    case DType::i32:
      return to_doubles<int32_t>(bytes);
    case DType::u8:
      return to_doubles<uint8_t>(bytes);
    case DType::bf16:
    case DType::f16:
      break;
  }
  fail(ExitCode::internal, "unknown element type");
}

void Net::write(void* to, DType type, std::span<const double> values) const {
  const std::vector<std::byte> bytes = type == DType::f64   ? from_doubles<double>(values)
                                       : type == DType::f32 ? from_doubles<float>(values)
                                       : type == DType::u8  ? from_doubles<uint8_t>(values)
                                                            : from_doubles<int32_t>(values);
  backend_.copy(*stream_, to, bytes.data(), bytes.size());
  stream_->wait();
}

int matches_of(const Executable& executable, std::string_view rewrite) {
  for (const auto& [name, matches] : executable.applied_rewrites()) {
    if (name == rewrite) return matches;
  }
  return -1;
}

double worst_error(Net& net, Net& expected) {
  for (Net* each : {&net, &expected}) {
    each->fill_at_random(1);
    each->forward();
    each->backward();
  }
  double worst = worst_gradient_error(net, expected);
  for (size_t h = 0; h < expected.graph().losses.size(); ++h) {
    const double error =
        relative_error(net.value(net.graph().losses[h].logits), expected.value(expected.graph().losses[h].logits));
    if (!(error <= worst)) worst = error;
  }
  return worst;
}

double relative_error(std::span<const double> a, std::span<const double> b) {
  require(a.size() == b.size(), "{} values against {}", a.size(), b.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

double worst_gradient_error(const Net& net, const Net& expected) {
  auto norm = [](const std::vector<double>& v) { return relative_error(v, std::vector<double>(v.size())); };
  double largest = 0, worst = 0;
  for (const Parameter& p : expected.graph().parameters.all()) {
    if (p.trained()) largest = std::max(largest, norm(expected.gradient(p.name)));
  }
  for (const Parameter& p : expected.graph().parameters.all()) {
    if (!p.trained()) continue;
    std::vector<double> difference = net.gradient(p.name);
    const std::vector<double> right = expected.gradient(p.name);
    for (size_t i = 0; i < right.size(); ++i) difference[i] -= right[i];
    const double error = norm(difference) / std::max(norm(right), 1e-3 * largest);
    if (!(error <= worst)) worst = error;  // NaN counts as worst
  }
  return worst;
}

}  // namespace lockstep::test
