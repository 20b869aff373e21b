#include "lockstep/backend/deferred_backend.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <utility>

#include "backend/deferred/operand_bytes.h"
#include "backend/deferred/order_check.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Label = std::shared_ptr<const std::string>;

class DeferredStream;

// The memory of an operand: pieces of equal size, `stride` bytes apart. A channel slice of a larger
// tensor has several.
struct Stretches {
  size_t bytes = 0, stride = 0, count = 1;

  void append_to(std::vector<MemoryRange>& ranges, const void* begin) const {
    for (size_t i = 0; i < count; ++i) ranges.push_back({static_cast<const char*>(begin) + i * stride, bytes});
  }
};

Stretches stretches_of(const Backend& backend, const TensorDesc& desc) {
  if (desc.parent_channels == 0) return {.bytes = backend.storage_bytes(desc)};
  const Shape& s = desc.shape;
  const bool rows = desc.format.kind == Format::Kind::channels_last;
  TensorDesc one{rows ? Shape{1, s.c(), 1, 1} : Shape{1, s.c(), s.h(), s.w()}, desc.dtype, desc.format};
  const size_t bytes = packed_bytes(one);
  one.shape = {1, desc.parent_channels, one.shape.h(), one.shape.w()};
  return {bytes, packed_bytes(one), static_cast<size_t>(rows ? s.n() * s.h() * s.w() : s.n())};
}

// A recorded point in the work of a stream.
struct Mark {
  DeferredStream* stream = nullptr;
  bool passed = false;
  double passed_at = 0;
  VectorClock clock;
};

// The common state of the streams of one backend.
struct Core {
  std::unique_ptr<Backend> inner;
  std::unique_ptr<Stream> inner_stream;
  std::vector<Buffer> memory;  // everything that was ever allocated
  size_t timelines = 1;        // 0 is the host
  VectorClock host;
  OrderCheck check;
  std::vector<std::function<void()>>* capture = nullptr;  // not null: calls are recorded there and not made

  // Whether `data` is in memory of this backend, device or pinned.
  bool owns(const void* data) const {
    const auto* at = static_cast<const char*>(data);
    return std::ranges::any_of(memory,
                               [&](const Buffer& b) { return at >= b.as<char>() && at < b.as<char>() + b.bytes(); });
  }
};

class DeferredEvent final : public Event {
 public:
  explicit DeferredEvent(Core& core) : core_(core) {}
  bool passed() const override;
  void wait() const override;
  double seconds_since(const Event& earlier) const override {
    return mark->passed_at - static_cast<const DeferredEvent&>(earlier).mark->passed_at;
  }

  std::shared_ptr<Mark> mark;  // of the last record

 private:
  Core& core_;
};

class DeferredStream final : public Stream {
 public:
  explicit DeferredStream(Core& core) : core_(core), timeline_(core.timelines++) {}

  void wait() override {
    require(!core_.capture, "the host waits for a stream while work is captured");
    while (!items_.empty()) run_next();
    core_.host.join(clock_);
  }

  void record(Event& event) override {
    auto& deferred = static_cast<DeferredEvent&>(event);
    if (noted([this, &deferred] { record(deferred); })) return;
    clock_.join(core_.host);
    clock_.tick(timeline_);
    deferred.mark = std::make_shared<Mark>(Mark{.stream = this, .clock = clock_});
    items_.push_back({.work = [mark = deferred.mark] {
      mark->passed = true;
      mark->passed_at = monotonic_seconds();
    }});
  }

  void wait_for(const Event& event) override {
    const auto& deferred = static_cast<const DeferredEvent&>(event);
    if (noted([this, &deferred] { wait_for(deferred); })) return;
    if (!deferred.mark) return;
    clock_.join(deferred.mark->clock);
    items_.push_back({.waits_for = deferred.mark});
  }

  // One kernel or copy: checks its accesses now, runs it later.
  struct Work {
    Label what;
    std::vector<MemoryRange> reads, writes;
    std::function<void()> run;
  };
  void enqueue(Work work) {
    clock_.join(core_.host);
    clock_.tick(timeline_);
    const Access access{timeline_, clock_.of(timeline_), work.what};
    for (const MemoryRange& range : work.reads) core_.check.read(range, access, clock_);
    for (const MemoryRange& range : work.writes) core_.check.write(range, access, clock_);
    items_.push_back({.work = std::move(work.run)});
  }

  // During a capture: records the call for later launches and returns true.
  bool noted(std::function<void()> call) const {
    if (core_.capture) core_.capture->push_back(std::move(call));
    return core_.capture != nullptr;
  }

  void run_until(const Mark& mark) {
    while (!mark.passed) run_next();
  }
  void run_next() {
    const Item item = std::move(items_.front());
    items_.pop_front();
    if (item.waits_for) item.waits_for->stream->run_until(*item.waits_for);
    if (item.work) item.work();
  }

 private:
  struct Item {
    std::function<void()> work;
    std::shared_ptr<Mark> waits_for;
  };

  Core& core_;
  const size_t timeline_;
  VectorClock clock_;
  std::deque<Item> items_;
};

// Each query lets the stream do one piece of work, as a device would make progress meanwhile.
bool DeferredEvent::passed() const {
  if (!mark) return true;
  if (!mark->passed) mark->stream->run_next();
  if (mark->passed) core_.host.join(mark->clock);
  return mark->passed;
}

void DeferredEvent::wait() const {
  require(!core_.capture, "the host waits for an event while work is captured");
  if (!mark) return;
  mark->stream->run_until(*mark);
  core_.host.join(mark->clock);
}

struct OperandMemory {
  std::vector<Stretches> inputs, outputs;
};

class DeferredKernel final : public Kernel {
 public:
  DeferredKernel(Core& core, std::unique_ptr<Kernel> inner, std::string what, OperandMemory memory)
      : core_(core),
        inner_(std::move(inner)),
        what_(std::make_shared<const std::string>(std::move(what))),
        memory_(std::move(memory)) {}

  void run(const KernelArgs& args) const override {
    auto& stream = static_cast<DeferredStream&>(args.stream);
    const Operands operands{
        {args.inputs.begin(), args.inputs.end()}, {args.outputs.begin(), args.outputs.end()}, args.workspace};
    if (stream.noted([this, &stream, operands] { enqueue(stream, operands); })) return;
    enqueue(stream, operands);
  }
  size_t workspace_bytes() const override { return inner_->workspace_bytes(); }
  std::string implementation() const override { return inner_->implementation(); }

 private:
  struct Operands {
    std::vector<void*> inputs, outputs;
    void* workspace;
  };

  void enqueue(DeferredStream& stream, const Operands& operands) const {
    require(operands.inputs.size() == memory_.inputs.size() && operands.outputs.size() == memory_.outputs.size(),
            "{} has {} inputs and {} outputs, not {} and {}", *what_, memory_.inputs.size(), memory_.outputs.size(),
            operands.inputs.size(), operands.outputs.size());
    DeferredStream::Work work{.what = what_};
    for (size_t i = 0; i < memory_.inputs.size(); ++i) {
      require(core_.owns(operands.inputs[i]) || memory_.inputs[i].bytes == 0,
              "{} reads input {} from memory of the host", *what_, i);
      memory_.inputs[i].append_to(work.reads, operands.inputs[i]);
    }
    for (size_t i = 0; i < memory_.outputs.size(); ++i) memory_.outputs[i].append_to(work.writes, operands.outputs[i]);
    work.writes.push_back({operands.workspace, inner_->workspace_bytes()});
    work.run = [this, operands] {
      inner_->run({*core_.inner_stream, operands.inputs, operands.outputs, operands.workspace});
    };
    stream.enqueue(std::move(work));
  }

  Core& core_;
  const std::unique_ptr<Kernel> inner_;
  const Label what_;
  const OperandMemory memory_;
};

class DeferredWork final : public CapturedWork {
 public:
  explicit DeferredWork(std::vector<std::function<void()>> calls) : calls_(std::move(calls)) {}
  void launch(Stream&) const override {
    for (const auto& call : calls_) call();
  }

 private:
  const std::vector<std::function<void()>> calls_;
};

class DeferredBackend final : public Backend {
 public:
  explicit DeferredBackend(std::unique_ptr<Backend> inner) {
    require(inner->host_addressable(), "{} is a device already", inner->name());
    core_->inner_stream = inner->make_stream();
    core_->inner = std::move(inner);
  }

  std::string_view name() const override { return "deferred"; }
  FormatChoice choose_formats(const Op& op, std::span<const TensorDesc> inputs,
                              std::span<const TensorDesc> outputs) const override {
    return core_->inner->choose_formats(op, inputs, outputs);
  }
  // Answers like the inner backend, so that the checked graph has the same views as on a device. Norms are not
  // recomputed, because they are not on a GPU.
  bool reads_slice(const Op& op, size_t input) const override { return core_->inner->reads_slice(op, input); }
  bool writes_slice(const Op& op) const override { return core_->inner->writes_slice(op); }
  bool can(const Op& op, std::span<const TensorDesc> inputs, std::span<const TensorDesc> outputs) const override {
    return core_->inner->can(op, inputs, outputs);
  }
  size_t saved_bytes(const Op& op, std::span<const TensorDesc> inputs) const override {
    return core_->inner->saved_bytes(op, inputs);
  }
  size_t storage_bytes(const TensorDesc& desc) const override { return core_->inner->storage_bytes(desc); }

  std::unique_ptr<Kernel> compile(const Op& op, std::span<const TensorDesc> inputs,
                                  std::span<const TensorDesc> outputs) const override {
    OperandMemory memory;
    for (const TensorDesc& desc : inputs) memory.inputs.push_back(stretches_of(*this, desc));
    for (const TensorDesc& desc : outputs) memory.outputs.push_back(stretches_of(*this, desc));
    return std::make_unique<DeferredKernel>(*core_, core_->inner->compile(op, inputs, outputs),
                                            std::string(op_name(op)), std::move(memory));
  }
  std::unique_ptr<Kernel> compile(const UpdateOp& op) const override {
    const OperandBytes bytes = operand_bytes(op);
    OperandMemory memory;
    for (const size_t b : bytes.inputs) memory.inputs.push_back({.bytes = b});
    for (const size_t b : bytes.outputs) memory.outputs.push_back({.bytes = b});
    return std::make_unique<DeferredKernel>(*core_, core_->inner->compile(op), std::string(operation_name(op)),
                                            std::move(memory));
  }

  Buffer allocate(size_t bytes) const override {
    Buffer& own = core_->memory.emplace_back(core_->inner->allocate(bytes));
    return {own.data(), own.bytes(), [](void*, size_t) noexcept {}};
  }
  Buffer allocate_pinned(size_t bytes) const override { return allocate(bytes); }
  bool host_addressable() const override { return false; }

  void copy(Stream& stream, void* to, const void* from, size_t bytes) const override {
    if (bytes == 0) return;
    auto& deferred = static_cast<DeferredStream&>(stream);
    if (core_->owns(from) && core_->owns(to)) {
      if (deferred.noted([this, &stream, to, from, bytes] { copy(stream, to, from, bytes); })) return;
      deferred.enqueue({copy_, {{from, bytes}}, {{to, bytes}}, [to, from, bytes] { std::memcpy(to, from, bytes); }});
      return;
    }
    require(!core_->capture, "a copy of memory that is not pinned cannot be captured");
    if (core_->owns(to)) {  // taken before the call returns
      const auto* first = static_cast<const char*>(from);
      deferred.enqueue({copy_, {}, {{to, bytes}}, [to, taken = std::vector<char>(first, first + bytes)] {
                          std::memcpy(to, taken.data(), taken.size());
                        }});
      return;
    }
    deferred.enqueue({copy_, {{from, bytes}}, {}, [to, from, bytes] { std::memcpy(to, from, bytes); }});
    deferred.wait();
  }

  std::unique_ptr<Stream> make_stream() const override { return std::make_unique<DeferredStream>(*core_); }
  std::unique_ptr<Event> make_event() const override { return std::make_unique<DeferredEvent>(*core_); }
  std::unique_ptr<Event> make_timed_event() const override { return make_event(); }
  std::unique_ptr<CapturedWork> capture(Stream&, const std::function<void()>& enqueue) const override {
    require(!core_->capture, "work is captured already");
    std::vector<std::function<void()>> calls;
    core_->capture = &calls;
    try {
      enqueue();
    } catch (...) {
      core_->capture = nullptr;
      throw;
    }
    core_->capture = nullptr;
    return std::make_unique<DeferredWork>(std::move(calls));
  }

 private:
  const std::unique_ptr<Core> core_ = std::make_unique<Core>();
  const Label copy_ = std::make_shared<const std::string>("copy");
};

}  // namespace

std::unique_ptr<Backend> make_deferred_backend(std::unique_ptr<Backend> inner) {
  return std::make_unique<DeferredBackend>(std::move(inner));
}

}  // namespace lockstep
