#include "test/backend/op_runner.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>

#include "lockstep/backend/update.h"
#include "lockstep/base/error.h"
#ifdef LOCKSTEP_KERNELS_ON_HOST
#include "test/backend/cuda_on_host/every_order.h"
#endif

namespace lockstep::test {
namespace {

template <class T>
std::vector<std::byte> pack(std::span<const double> values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    const T value = static_cast<T>(values[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

template <class T>
std::vector<double> unpack(std::span<const std::byte> bytes) {
  std::vector<double> values(bytes.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(value);
  }
  return values;
}

double from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

double from_f16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == 31) return mantissa ? std::numeric_limits<double>::quiet_NaN() : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

std::vector<double> unpack_as(DType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DType::f32:
      return unpack<float>(bytes);
    case DType::f64:
      return unpack<double>(bytes);
    case DType::i32:
      return unpack<int32_t>(bytes);
    case DType::u8:
      return unpack<uint8_t>(bytes);
    case DType::bf16:
    case DType::f16:
      break;
  }
  std::vector<double> values;
  for (const double bits : unpack<uint16_t>(bytes)) {
    values.push_back((dtype == DType::bf16 ? from_bf16 : from_f16)(static_cast<uint16_t>(bits)));
  }
  return values;
}

// A value of the program in the backend's memory, in whatever format it lies.
struct Placed {
  TensorDesc desc;
  Buffer buffer;
};

class Program {
 public:
  Program(const Backend& backend, const RunOptions& options)
      : backend_(backend), options_(options), stream_(backend.make_stream()) {}

  void add(const HostTensor& tensor) {
    values_.push_back({{tensor.shape, tensor.dtype, {}}, to_backend(backend_, *stream_, tensor)});
  }

  // Returns the name of the kernel that served it.
  std::string run(const Step& step) {
    std::vector<TensorDesc> in = descs(step.inputs);
    std::vector<TensorDesc> out = infer(step.op, in);
    const FormatChoice choice = backend_.choose_formats(step.op, in, out);
    require(choice.inputs.size() == in.size() && choice.outputs.size() == out.size(), "formats of {}",
            op_name(step.op));
    std::vector<Placed> reordered(in.size());
    std::vector<void*> inputs(in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      const Placed& value = values_[static_cast<size_t>(step.inputs[i])];
      inputs[i] = value.buffer.data();
      if (in[i].format == choice.inputs[i]) continue;
      reordered[i] = reorder(value, choice.inputs[i]);
      in[i] = reordered[i].desc;
      inputs[i] = reordered[i].buffer.data();
    }
    std::vector<Placed> results;
    std::vector<void*> outputs;
    for (size_t i = 0; i < out.size(); ++i) {
      out[i].format = choice.outputs[i];
      if (static_cast<int>(i) == saved_output(step.op)) {
        out[i].shape = {static_cast<int64_t>(backend_.saved_bytes(step.op, in))};
      }
      results.push_back({out[i], poisoned(backend_.storage_bytes(out[i]))});
      outputs.push_back(results.back().buffer.data());
    }
    const int shared = options_.in_place ? in_place_input(step.op) : -1;
    if (shared >= 0 && in[static_cast<size_t>(shared)] == out[0]) {
      void*& input = inputs[static_cast<size_t>(shared)];
      backend_.copy(*stream_, outputs[0], input, results[0].buffer.bytes());
      input = outputs[0];
    }
    std::string implementation = execute(*backend_.compile(step.op, in, out), inputs, outputs);
    for (Placed& result : results) values_.push_back(std::move(result));
    return implementation;
  }

  std::vector<HostTensor> read_back() {
    std::vector<HostTensor> tensors;
    for (const Placed& value : values_) {
      if (value.desc.dtype == DType::u8) {
        tensors.push_back({value.desc.shape, DType::u8, {}});
      } else if (value.desc.format == Format::plain()) {
        tensors.push_back(from_backend(backend_, *stream_, value.desc, value.buffer));
      } else {
        const Placed plain = reorder(value, Format::plain());
        tensors.push_back(from_backend(backend_, *stream_, plain.desc, plain.buffer));
      }
    }
    return tensors;
  }

 private:
  std::vector<TensorDesc> descs(const std::vector<int>& numbers) const {
    std::vector<TensorDesc> result;
    for (int number : numbers) result.push_back(values_.at(static_cast<size_t>(number)).desc);
    return result;
  }

  Placed reorder(const Placed& value, Format format) {
    const TensorDesc to{value.desc.shape, value.desc.dtype, format};
    Placed result{to, poisoned(backend_.storage_bytes(to))};
    void* const in[] = {value.buffer.data()};
    void* const out[] = {result.buffer.data()};
    execute(*backend_.compile(Reorder{}, {&value.desc, 1}, {&to, 1}), in, out);
    return result;
  }

  std::string execute(const Kernel& kernel, std::span<void* const> inputs, std::span<void* const> outputs) {
    const Buffer workspace = poisoned(kernel.workspace_bytes());
    kernel.run({*stream_, inputs, outputs, workspace.data()});
    stream_->wait();
    return kernel.implementation();
  }

  // Memory whose every float is a NaN.
  Buffer poisoned(size_t bytes) {
    Buffer buffer = backend_.allocate(bytes);
    const std::vector<std::byte> poison(bytes, std::byte{0xff});
    backend_.copy(*stream_, buffer.data(), poison.data(), bytes);
    stream_->wait();
    return buffer;
  }

  const Backend& backend_;
  RunOptions options_;
  std::unique_ptr<Stream> stream_;
  std::vector<Placed> values_;
};

// The outputs after one run of a kernel of the update.
std::vector<HostTensor> updated(const Backend& backend, const Kernel& kernel, std::span<const HostTensor> inputs,
                                std::span<const HostTensor> outputs) {
  const std::unique_ptr<Stream> stream = backend.make_stream();
  std::vector<Buffer> buffers;
  std::vector<void*> in, out;
  for (const HostTensor& tensor : inputs) {
    buffers.push_back(to_backend(backend, *stream, tensor));
    in.push_back(buffers.back().data());
  }
  const size_t first_output = buffers.size();
  for (const HostTensor& tensor : outputs) {
    buffers.push_back(to_backend(backend, *stream, tensor));
    out.push_back(buffers.back().data());
  }
  const Buffer workspace = backend.allocate(kernel.workspace_bytes());
  kernel.run({*stream, in, out, workspace.data()});
  stream->wait();
  std::vector<HostTensor> results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorDesc desc{outputs[i].shape, outputs[i].dtype, {}};
    results.push_back(from_backend(backend, *stream, desc, buffers[first_output + i]));
  }
  return results;
}

// What compute() returns; where the kernels of a GPU run on the host, in every order of their threads.
std::vector<HostTensor> computed([[maybe_unused]] const Backend& backend,
                                 const std::function<std::vector<HostTensor>()>& compute) {
#ifdef LOCKSTEP_KERNELS_ON_HOST
  if (backend.name() == "cuda") return computed_in_every_order(compute);
#endif
  return compute();
}

}  // namespace

Buffer to_backend(const Backend& backend, Stream& stream, const HostTensor& tensor) {
  const std::vector<std::byte> bytes = tensor.dtype == DType::f32   ? pack<float>(tensor.values)
                                       : tensor.dtype == DType::f64 ? pack<double>(tensor.values)
                                       : tensor.dtype == DType::u8  ? pack<uint8_t>(tensor.values)
                                                                    : pack<int32_t>(tensor.values);
  require(bytes.size() == packed_bytes({tensor.shape, tensor.dtype, {}}), "{} values for shape {}",
          tensor.values.size(), tensor.shape.to_string());
  Buffer buffer = backend.allocate(bytes.size());
  backend.copy(stream, buffer.data(), bytes.data(), bytes.size());
  stream.wait();
  return buffer;
}

HostTensor from_backend(const Backend& backend, Stream& stream, const TensorDesc& desc, const Buffer& buffer) {
  std::vector<std::byte> bytes(packed_bytes(desc));
  backend.copy(stream, bytes.data(), buffer.data(), bytes.size());
  stream.wait();
  return {desc.shape, desc.dtype, unpack_as(desc.dtype, bytes)};
}

double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / (norm > 0 ? norm : 1));
}

ProgramResult run_program(const Backend& backend, std::span<const HostTensor> inputs, std::span<const Step> steps,
                          const RunOptions& options) {
  ProgramResult result;
  result.values = computed(backend, [&] {
    Program program(backend, options);
    result.implementations.clear();
    for (const HostTensor& input : inputs) program.add(input);
    for (const Step& step : steps) result.implementations.push_back(program.run(step));
    return program.read_back();
  });
  return result;
}

void run_update(const Backend& backend, const UpdateOp& op, std::span<const HostTensor> inputs,
                std::span<HostTensor> outputs) {
  const std::unique_ptr<Kernel> kernel = backend.compile(op);
  std::ranges::move(computed(backend, [&] { return updated(backend, *kernel, inputs, outputs); }), outputs.begin());
}

}  // namespace lockstep::test
