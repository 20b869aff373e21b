// The reference backend: the same code for float and double, with sums in double. Results do not depend on the number
// of threads: each output element is summed by one thread in one order.
#pragma once

#include <omp.h>

#include <span>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/backend/update.h"

namespace lockstep::reference {

// One execution: the tensors (none for updates), the memory, and the number of threads.
template <class T>
struct Call {
  std::span<const TensorDesc> in, out;
  const KernelArgs& args;
  int threads;
  int64_t scratch_elements;  // of each thread

  const Shape& in_shape(size_t i) const { return in[i].shape; }
  const Shape& out_shape(size_t i) const { return out[i].shape; }
  template <class U = T>
  const U* input(size_t i) const {
    return static_cast<const U*>(args.inputs[i]);
  }
  template <class U = T>
  U* output(size_t i) const {
    return static_cast<U*>(args.outputs[i]);
  }
  // The calling thread's scratch memory, contents undefined.
  double* scratch() const { return static_cast<double*>(args.workspace) + omp_get_thread_num() * scratch_elements; }
};

// Calls compute(call) for an operation that reads `image` instead of that input.
template <class T, class Compute>
void with_image(const Call<T>& call, size_t input, const T* image, const Compute& compute) {
  std::vector<void*> inputs(call.args.inputs.begin(), call.args.inputs.end());
  inputs[input] = const_cast<T*>(image);  // KernelArgs knows no const
  const KernelArgs args{call.args.stream, inputs, call.args.outputs, call.args.workspace};
  compute(Call<T>{call.in, call.out, args, call.threads, call.scratch_elements});
}

// The elements of one channel: `batch` planes of `plane` elements.
struct Channel {
  int64_t batch, plane, stride, offset;

  Channel(const Shape& shape, int64_t c)
      : batch(shape.n()), plane(shape.h() * shape.w()), stride(shape.c() * plane), offset(c * plane) {}
  double count() const { return static_cast<double>(batch * plane); }

  template <class Visit>
  void for_each(Visit&& visit) const {
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t j = 0; j < plane; ++j) visit(n * stride + offset + j);
    }
  }
};

// Doubles of scratch memory that each thread needs for `op`.
int64_t scratch_elements(const Op& op, std::span<const TensorDesc> inputs, std::span<const TensorDesc> outputs);

// Bytes of the operation's `saved` output: one int32 for each output of MaxPool (the position of its window's maximum
// in the input plane), one byte for each element of a BatchNorm with ReLU (1 where it is positive), otherwise none.
size_t saved_bytes(const Op& op, std::span<const TensorDesc> inputs);

// One function for each operation, in the file of its family.
template <class T>
struct Reference {
  static void compute(const Conv2d& op, const Call<T>& call);
  static void compute(const Conv2dGradInput& op, const Call<T>& call);
  static void compute(const Conv2dGradWeights& op, const Call<T>& call);
  static void compute(const Linear& op, const Call<T>& call);
  static void compute(const LinearGradInput& op, const Call<T>& call);
  static void compute(const LinearGradWeights& op, const Call<T>& call);
  static void compute(const EmbeddingBag& op, const Call<T>& call);
  static void compute(const EmbeddingBagGrad& op, const Call<T>& call);
  static void compute(const BatchNorm& op, const Call<T>& call);
  static void compute(const BatchNormGrad& op, const Call<T>& call);
  static void compute(const BatchNormInference& op, const Call<T>& call);
  static void compute(const BatchNormInferenceGrad& op, const Call<T>& call);
  static void compute(const BatchMoments& op, const Call<T>& call);
  static void compute(const SyncBatchNormSums& op, const Call<T>& call);
  static void compute(const SyncBatchNorm& op, const Call<T>& call);
  static void compute(const SyncBatchNormGradSums& op, const Call<T>& call);
  static void compute(const SyncBatchNormGrad& op, const Call<T>& call);
  static void compute(const SumOverRanks& op, const Call<T>& call);
  static void compute(const Relu& op, const Call<T>& call);
  static void compute(const ReluGrad& op, const Call<T>& call);
  static void compute(const Add& op, const Call<T>& call);
  static void compute(const Dropout& op, const Call<T>& call);
  static void compute(const MaxPool& op, const Call<T>& call);
  static void compute(const MaxPoolGrad& op, const Call<T>& call);
  static void compute(const MaxPoolGradSum& op, const Call<T>& call);
  static void compute(const AvgPool& op, const Call<T>& call);
  static void compute(const AvgPoolGrad& op, const Call<T>& call);
  static void compute(const LocalResponseNorm& op, const Call<T>& call);
  static void compute(const LocalResponseNormGrad& op, const Call<T>& call);
  static void compute(const Concat& op, const Call<T>& call);
  static void compute(const Slice& op, const Call<T>& call);
  static void compute(const Reshape& op, const Call<T>& call);
  static void compute(const Reorder& op, const Call<T>& call);
  static void compute(const Cast& op, const Call<T>& call);
  static void compute(const CastMany& op, const Call<T>& call);
  static void compute(const PreparePixels& op, const Call<T>& call);
  static void compute(const SoftmaxCrossEntropy& op, const Call<T>& call);
  static void compute(const SoftmaxCrossEntropyGrad& op, const Call<T>& call);
  static void compute(const Conv2dStatistics& op, const Call<T>& call);
  static void compute(const Conv2dNormalizedGradWeights& op, const Call<T>& call);
  static void compute(const Conv2dGradInputNorm& op, const Call<T>& call);
  static void compute(const BatchNormGradApply& op, const Call<T>& call);
  static void compute(const BatchNormOfSums& op, const Call<T>& call);
  static void compute(const BatchNormStatistics& op, const Call<T>& call);
  static void compute(const BatchNormOfSumsGrad& op, const Call<T>& call);
  static void compute(const BatchNormGradSums& op, const Call<T>& call);
  static void compute(const BatchNormGradOfSums& op, const Call<T>& call);
  static void compute(const AvgPoolStatistics& op, const Call<T>& call);
  static void compute(const BatchNormMaxPool& op, const Call<T>& call);
  static void compute(const MaxPoolGradNormSums& op, const Call<T>& call);
  static void compute(const BatchNormMaxPoolGradOfSums& op, const Call<T>& call);
  static void compute(const BatchNormMaxPoolGrad& op, const Call<T>& call);

  static void compute(const ApplyOptimizer& op, const Call<T>& call);
  static void compute(const ApplyAverage& op, const Call<T>& call);
  static void compute(const ApplyStatistics& op, const Call<T>& call);
  static void compute(const SumOfSquares& op, const Call<T>& call);
  static void compute(const AddToSums& op, const Call<T>& call);
  static void compute(const DowncastValues& op, const Call<T>& call);
  static void compute(const UpcastValues& op, const Call<T>& call);
  static void compute(const FindNonFinite& op, const Call<T>& call);
  static void compute(const FillStepHeader& op, const Call<T>& call);
  static void compute(const DecideUpdate& op, const Call<T>& call);
};

}  // namespace lockstep::reference

// Instantiates an operation's compute() for both element types, at the end of the file that defines them.
#define LOCKSTEP_REFERENCE_COMPUTE(Operation)                                    \
  template void Reference<float>::compute(const Operation&, const Call<float>&); \
  template void Reference<double>::compute(const Operation&, const Call<double>&)
