// A backend without arithmetic, for tests of the graph layer. It has preferences (blocked images and packed weights for
// convolutions, saved blobs, workspaces), and its kernels mix every byte they read into every byte they write: memory
// that was given away too early changes all that is computed from it.
#pragma once

#include <cstdlib>
#include <cstring>

#include "lockstep/backend/backend.h"
#include "lockstep/base/error.h"
#include "lockstep/base/random.h"

namespace lockstep::test {

inline const Format kBlocked = Format::blocked(8);
inline const Format kPacked = Format::opaque(1);
inline constexpr size_t kConvWorkspace = 1000;

struct FakePreferences {
  bool formats = true;   // false: everything plain
  int refuses_op = -1;   // index in Op of an operation that compile() refuses
  size_t workspace = 0;  // bytes that every kernel but a convolution asks for
  bool (*can)(const Op&) = nullptr;
};

class FakeStream final : public Stream {
 public:
  void wait() override {}
  void record(Event&) override {}
  void wait_for(const Event&) override {}
};

class FakeKernel final : public Kernel {
 public:
  struct Sizes {
    std::vector<size_t> inputs, outputs;
    size_t workspace = 0;
  };
  FakeKernel(const Op& op, Sizes sizes) : op_(op), sizes_(std::move(sizes)) {}

  void run(const KernelArgs& args) const override {
    if (args.workspace) std::memset(args.workspace, 0xA5, sizes_.workspace);
    if (std::holds_alternative<Reshape>(op_)) {
      std::memmove(args.outputs[0], args.inputs[0], sizes_.inputs[0]);
      return;
    }
    uint64_t hash = op_.index();
    for (size_t i = 0; i < sizes_.inputs.size(); ++i) {
      hash = random_key(hash, fnv1a64(std::string_view(static_cast<const char*>(args.inputs[i]), sizes_.inputs[i])));
    }
    for (size_t i = 0; i < sizes_.outputs.size(); ++i) {
      auto* bytes = static_cast<unsigned char*>(args.outputs[i]);
      const uint64_t key = random_key(hash, i);
      for (size_t b = 0; b < sizes_.outputs[i]; ++b) bytes[b] = static_cast<unsigned char>(random_bits(key, b));
    }
  }
  size_t workspace_bytes() const override { return sizes_.workspace; }
  std::string implementation() const override { return "fake"; }

 private:
  Op op_;
  Sizes sizes_;
};

class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(FakePreferences preferences = {}) : pending_(preferences) {}

  std::string_view name() const override { return "fake"; }

  FormatChoice choose_formats(const Op& op, std::span<const TensorDesc> inputs,
                              std::span<const TensorDesc> outputs) const override {
    FormatChoice choice{std::vector<Format>(inputs.size()), std::vector<Format>(outputs.size())};
    if (!pending_.formats) return choice;
    auto follow_first = [&] {
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i].shape.rank() == 4) choice.inputs[i] = inputs[0].format;
      }
      for (size_t i = 0; i < outputs.size(); ++i) {
        if (outputs[i].shape.rank() == 4) choice.outputs[i] = inputs[0].format;
      }
    };
    std::visit(Overload{[&](const Conv2d&) {
                          choice.inputs[0] = choice.outputs[0] = kBlocked;
                          choice.inputs[1] = kPacked;
                        },
                        [&](const Conv2dGradInput&) {
                          choice.inputs[0] = choice.outputs[0] = kBlocked;
                          choice.inputs[1] = kPacked;
                        },
                        [&](const Conv2dGradWeights&) {
                          choice.inputs[0] = choice.inputs[1] = kBlocked;
                          choice.outputs[0] = kPacked;
                        },
                        [&](const PreparePixels&) { choice.outputs[0] = kPacked; }, [](const Reshape&) {},
                        [&](const auto&) { follow_first(); }},
               op);
    return choice;
  }

  bool can(const Op& op, std::span<const TensorDesc>, std::span<const TensorDesc>) const override {
    return pending_.can && pending_.can(op);
  }

  size_t saved_bytes(const Op& op, std::span<const TensorDesc> inputs) const override {
    const auto elements = static_cast<size_t>(inputs[0].shape.elements());
    return std::visit(Overload{[&](const OneOf<MaxPool, BatchNormMaxPool> auto&) { return elements; },
                               [&](const BatchNorm& o) { return o.relu ? (elements + 7) / 8 : size_t{0}; },
                               [](const auto&) { return size_t{0}; }},
                      op);
  }

  size_t storage_bytes(const TensorDesc& desc) const override {
    if (desc.format.kind != Format::Kind::opaque) return packed_bytes(desc);
    return static_cast<size_t>(desc.shape.elements()) * dtype_bytes(desc.dtype) + 128;
  }

  std::unique_ptr<Kernel> compile(const Op& op, std::span<const TensorDesc> inputs,
                                  std::span<const TensorDesc> outputs) const override {
    if (static_cast<int>(op.index()) == pending_.refuses_op) fail(ExitCode::config, "refused");
    FakeKernel::Sizes sizes;
    for (const TensorDesc& d : inputs) sizes.inputs.push_back(storage_bytes(d));
    for (const TensorDesc& d : outputs) sizes.outputs.push_back(storage_bytes(d));
    sizes.workspace = std::holds_alternative<Conv2d>(op) ? kConvWorkspace : pending_.workspace;
    return std::make_unique<FakeKernel>(op, std::move(sizes));
  }
  std::unique_ptr<Kernel> compile(const UpdateOp&) const override {
    fail(ExitCode::internal, "the fake backend has no updates");
  }

  Buffer allocate(size_t bytes) const override {
    const size_t rounded = (bytes + 63) / 64 * 64 + 64;
    void* data = std::aligned_alloc(64, rounded);
    std::memset(data, 0, rounded);
    return {data, bytes, [](void* p, size_t) noexcept { std::free(p); }};
  }
  Buffer allocate_pinned(size_t bytes) const override { return allocate(bytes); }
  bool host_addressable() const override { return true; }
  void copy(Stream&, void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
  std::unique_ptr<Stream> make_stream() const override { return std::make_unique<FakeStream>(); }
  std::unique_ptr<Event> make_event() const override { fail(ExitCode::internal, "the fake backend has no events"); }
  std::unique_ptr<Event> make_timed_event() const override { return make_event(); }

 private:
  FakePreferences pending_;
};

}  // namespace lockstep::test
