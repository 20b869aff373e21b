// The kernels of the parameter update and their tables on the device.
#include "backend/cuda/update.h"

#include <algorithm>

#include "backend/cuda/check.h"
#include "backend/cuda/context.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/placement.h"
#include "backend/cuda/pointwise.h"
#include "lockstep/base/error.h"

namespace lockstep::cuda {
namespace {

// Cuts the update into pieces, and those of which copies are made so that a piece has whole filters or, of a large one,
// some channels.
class Pieces {
  static constexpr int64_t kCopiedTogether = 8;  // channels: 16 bytes of a copy

 public:
  explicit Pieces(const ApplyOptimizer& op) : copies_(op.copies) {
    std::ranges::sort(copies_, {}, &WeightCopy::offset);
    for (size_t s = 0; s < op.segments.size(); ++s) {
      const UpdateSegment& segment = op.segments[s];
      piece_ = {.segment = static_cast<int32_t>(s),
                .weight_decay = static_cast<float>(segment.weight_decay),
                .rate_factor = static_cast<float>(segment.rate_factor),
                .adaptive = segment.adaptive ? 1 : 0};
      const int64_t end = segment.offset + segment.count;
      for (int64_t begin = segment.offset; begin < end;) {
        const auto copy = std::ranges::upper_bound(copies_, begin, {}, [](const WeightCopy& c) { return end_of(c); });
        const bool copied = copy != copies_.end() && copy->offset <= begin;
        const int64_t until = copy == copies_.end() ? end : std::min(end, copied ? end_of(*copy) : copy->offset);
        copied ? add_copied(*copy, begin, until) : add(begin, until);
        begin = until;
      }
    }
  }

  const std::vector<UpdatePiece>& all() const { return pieces_; }

 private:
  static int64_t end_of(const WeightCopy& copy) { return copy.offset + copy.desc.shape.elements(); }

  void add(int64_t begin, int64_t end) {
    for (; begin < end; begin += kPieceElements) push(begin, std::min<int64_t>(kPieceElements, end - begin), -1);
  }

  void add_copied(const WeightCopy& copy, int64_t begin, int64_t end) {
    const Conversion what = conversion_of({copy.desc.shape, DType::f32, Format::plain()}, copy.desc);
    const int64_t first = copy.to_bytes / static_cast<int64_t>(dtype_bytes(copy.desc.dtype));
    const int64_t filter = what.channels * what.pixels, stored = what.channels + what.to_padding;
    const int64_t to_width = stored_width(what.to_pairs, what.width);
    const bool flat = what.pixels == 1 && what.to_padding == 0;
    require(flat || ((begin - copy.offset) % filter == 0 && (end - begin) % filter == 0), "a copy of part of a filter");
    require(what.pixels <= kPieceElements, "a filter of {} pixels", what.pixels);
    while (begin < end) {
      const int64_t at = begin - copy.offset, channel = flat ? 0 : at % filter / what.pixels;
      int64_t count = std::min<int64_t>(kPieceElements, end - begin);
      if (!flat && filter <= kPieceElements) {
        count -= count % filter;
      } else if (!flat) {
        // So many channels that the next piece begins where the update can move packs, and its copy as well.
        int64_t channels = kPieceElements / what.pixels;
        if (channels >= kCopiedTogether) channels -= channels % kCopiedTogether;
        count = std::min(channels, what.channels - channel) * what.pixels;
      }
      piece_.channels = static_cast<int32_t>(flat ? count : std::min(what.channels, count / what.pixels));
      piece_.pixels = static_cast<int32_t>(what.pixels);
      piece_.stored = static_cast<int32_t>(flat ? count : stored);
      piece_.width = static_cast<int32_t>(what.width);
      piece_.to_width = static_cast<int32_t>(to_width);
      push(begin, count, first + (flat ? at : at / filter * (what.pixels / what.width * to_width) * stored + channel));
      begin += count;
    }
  }

  void push(int64_t offset, int64_t count, int64_t copy) {
    piece_.offset = offset;
    piece_.count = static_cast<int32_t>(count);
    piece_.copy = copy;
    pieces_.push_back(piece_);
  }

  std::vector<WeightCopy> copies_;
  UpdatePiece piece_;  // what the pieces of a segment share
  std::vector<UpdatePiece> pieces_;
};

std::vector<UpdateSpan> spans_of(const std::vector<UpdatePiece>& pieces, size_t segments) {
  std::vector<UpdateSpan> spans(segments);
  for (size_t i = 0; i < pieces.size(); ++i) {
    UpdateSpan& span = spans[pieces[i].segment];
    if (span.end == 0) span.first = static_cast<int32_t>(i);
    span.end = static_cast<int32_t>(i) + 1;
  }
  return spans;
}

template <class T>
Buffer upload(const std::vector<T>& table) {
  Buffer buffer = allocate_device(table.size() * sizeof(T));
  if (!table.empty()) {
    check(cudaMemcpy(buffer.data(), table.data(), buffer.bytes(), cudaMemcpyHostToDevice), "uploading a table");
    // The call may return before the last bytes have arrived, and our streams do not wait for the default stream.
    check(cudaDeviceSynchronize(), "uploading a table");
  }
  return buffer;
}

// The update moves 16 bytes at a time.
void require_packs(std::initializer_list<const void*> arrays) {
  for (const void* array : arrays)
    require(reinterpret_cast<uintptr_t>(array) % 16 == 0, "an arena of the update at {}", array);
}

class OptimizerKernel final : public Kernel {
 public:
  explicit OptimizerKernel(const ApplyOptimizer& op) : op_(op) {
    const std::vector<UpdatePiece> pieces = Pieces(op).all();
    for (const WeightCopy& copy : op.copies) copies_ = copy.desc.dtype;
    piece_table_ = upload(pieces);
    span_table_ = upload(spans_of(pieces, op.segments.size()));
    tables_ = {.pieces = piece_table_.as<UpdatePiece>(),
               .spans = span_table_.as<UpdateSpan>(),
               .piece_count = static_cast<int32_t>(pieces.size()),
               .segment_count = static_cast<int32_t>(op.segments.size())};
    sums_bytes_ = pieces.size() * 2 * sizeof(double);
    adaptive_ = op.kind == OptimizerKind::lars;
    slots_ = optimizer_slots(op.kind).slots.size();
  }

  void run(const KernelArgs& args) const override {
    const OptimizerArrays arrays{.gradients = input<float>(args, 0),
                                 .scalars = input<float>(args, 1),
                                 .values = output<float>(args, 0),
                                 .slot0 = output<float>(args, 1),
                                 .slot1 = slots_ > 1 ? output<float>(args, 2) : nullptr,
                                 .copies = copies_ == DType::f32 ? nullptr : args.outputs.back()};
    require_packs({arrays.gradients, arrays.values, arrays.slot0, arrays.slot1, arrays.copies});
    const cudaStream_t stream = stream_of(args).get();
    float* trust = nullptr;
    if (adaptive_) {
      trust = reinterpret_cast<float*>(static_cast<char*>(args.workspace) + sums_bytes_);
      launch_trust(stream, op_, tables_, arrays, static_cast<double*>(args.workspace), trust);
    }
    launch_optimizer(stream, op_, tables_, arrays, copies_, trust);
    check_launch("optimizer");
  }
  size_t workspace_bytes() const override { return adaptive_ ? sums_bytes_ + op_.segments.size() * sizeof(float) : 0; }
  std::string implementation() const override { return "optimizer"; }

 private:
  ApplyOptimizer op_;
  Buffer piece_table_, span_table_;
  OptimizerTables tables_;
  size_t sums_bytes_ = 0;
  bool adaptive_ = false;
  size_t slots_ = 1;
  DType copies_ = DType::f32;  // their type; f32: there are none
};

class StatisticsKernel final : public Kernel {
 public:
  explicit StatisticsKernel(const ApplyStatistics& op)
      : entries_(upload(op.entries)),
        table_{entries_.as<ApplyStatistics::Entry>(), static_cast<int32_t>(op.entries.size()), op.momentum} {}
  void run(const KernelArgs& args) const override {
    launch_statistics(stream_of(args).get(), table_, input<float>(args, 0), input<float>(args, 1),
                      output<float>(args, 0));
    check_launch("statistics");
  }
  std::string implementation() const override { return "statistics"; }

 private:
  Buffer entries_;
  StatisticsTable table_;
};

std::unique_ptr<Kernel> compile_one(const ApplyOptimizer& op) { return std::make_unique<OptimizerKernel>(op); }

std::unique_ptr<Kernel> compile_one(const ApplyStatistics& op) { return std::make_unique<StatisticsKernel>(op); }

std::unique_ptr<Kernel> compile_one(const ApplyAverage& op) {
  return make_launch_kernel("average", [op](const KernelArgs& args, cudaStream_t stream) {
    require_packs({input<float>(args, 0), output<float>(args, 0)});
    launch_average(stream, op.count, input<float>(args, 0), input<float>(args, 1), output<float>(args, 0));
  });
}

std::unique_ptr<Kernel> compile_one(const SumOfSquares& op) {
  const auto body = [op](const KernelArgs& args, cudaStream_t stream) {
    launch_sum_of_squares(stream, op.count, input<float>(args, 0), output<double>(args, 0), args.workspace);
  };
  return make_launch_kernel("sum_of_squares", body, sum_of_squares_bytes());
}

std::unique_ptr<Kernel> compile_one(const AddToSums& op) {
  return make_launch_kernel("pointwise", [op](const KernelArgs& args, cudaStream_t stream) {
    launch_add(stream, DType::f32, op.count, std::array<const void*, 2>{output(args, 0), input(args, 0)},
               output(args, 0));
  });
}

std::unique_ptr<Kernel> compile_conversion(int64_t count, DType from, DType to) {
  const Conversion what{.samples = 1, .channels = count, .pixels = 1, .from = from, .to = to};
  return make_launch_kernel("convert", [what](const KernelArgs& args, cudaStream_t stream) {
    launch_convert(stream, what, input(args, 0), output(args, 0));
  });
}

std::unique_ptr<Kernel> compile_one(const DowncastValues& op) {
  return compile_conversion(op.count, DType::f32, op.to);
}

std::unique_ptr<Kernel> compile_one(const UpcastValues& op) {
  return compile_conversion(op.count, op.from, DType::f32);
}

std::unique_ptr<Kernel> compile_one(const FindNonFinite& op) {
  return make_launch_kernel("find_non_finite", [op](const KernelArgs& args, cudaStream_t stream) {
    launch_find_non_finite(stream, op.count, input<float>(args, 0), input<double>(args, 1),
                           output<StepOutcome>(args, 0));
  });
}

std::unique_ptr<Kernel> compile_one(const FillStepHeader& op) {
  require(op.head_weights.size() <= kMaxHeads, "{} loss heads", op.head_weights.size());
  return make_launch_kernel("step_header", [op](const KernelArgs& args, cudaStream_t stream) {
    HeadLosses heads{.count = static_cast<int>(op.head_weights.size())};
    for (size_t i = 0; i < op.head_weights.size(); ++i) {
      heads.loss[i] = input<float>(args, 2 + i);
      heads.weight[i] = op.head_weights[i];
    }
    launch_fill_step_header(stream, heads, input<StepControl>(args, 0), input<int32_t>(args, 1), output<float>(args, 0),
                            output<StepOutcome>(args, 1));
  });
}

std::unique_ptr<Kernel> compile_one(const DecideUpdate& op) {
  return make_launch_kernel("step_decision", [op](const KernelArgs& args, cudaStream_t stream) {
    launch_decide_update(stream, op,
                         {.header = input<float>(args, 0),
                          .squares = input<double>(args, 1),
                          .control = input<StepControl>(args, 2),
                          .scalars = output<float>(args, 0),
                          .state = output<UpdateState>(args, 1),
                          .outcome = output<StepOutcome>(args, 2)});
  });
}

}  // namespace

std::unique_ptr<Kernel> compile_update(const UpdateOp& op) {
  if (op.dtype != DType::f32) {
    fail(ExitCode::config, "the CUDA backend updates float32 parameters, not {}", dtype_name(op.dtype));
  }
  return std::visit([](const auto& o) { return compile_one(o); }, op.op);
}

}  // namespace lockstep::cuda
