// The loops of the reference backend: one overload an operation, the same code for float and double, sums in double.
// Results do not depend on the number of threads: each output element is summed by one thread in one order.
#pragma once

#include <omp.h>

#include <span>

#include "lockstep/backend/backend.h"
#include "lockstep/backend/update.h"

namespace lockstep::reference {

// One execution: the shapes (empty for updates), the memory, and the threads to use.
template <class T>
struct Call {
  std::span<const TensorDesc> in, out;
  const KernelArgs& args;
  int threads;
  int64_t scratch_elements;  // a thread

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

// Doubles of scratch memory that each thread needs for `op`.
int64_t scratch_elements(const Op& op, std::span<const TensorDesc> inputs, std::span<const TensorDesc> outputs);

// Bytes of the operation's `saved` output: one int32 an output of MaxPool (where its window's maximum lies in the
// input plane), one byte an element of a BatchNorm with ReLU (1 where it passed), otherwise none.
size_t saved_bytes(const Op& op, std::span<const TensorDesc> inputs);

template <class T>
void loops(const Conv2d& op, const Call<T>& call);
template <class T>
void loops(const Conv2dGradInput& op, const Call<T>& call);
template <class T>
void loops(const Conv2dGradWeights& op, const Call<T>& call);
template <class T>
void loops(const Linear& op, const Call<T>& call);
template <class T>
void loops(const LinearGradInput& op, const Call<T>& call);
template <class T>
void loops(const LinearGradWeights& op, const Call<T>& call);
template <class T>
void loops(const EmbeddingBag& op, const Call<T>& call);
template <class T>
void loops(const EmbeddingBagGrad& op, const Call<T>& call);
template <class T>
void loops(const BatchNorm& op, const Call<T>& call);
template <class T>
void loops(const BatchNormGrad& op, const Call<T>& call);
template <class T>
void loops(const BatchNormInference& op, const Call<T>& call);
template <class T>
void loops(const BatchMoments& op, const Call<T>& call);
template <class T>
void loops(const SyncBatchNormSums& op, const Call<T>& call);
template <class T>
void loops(const SyncBatchNorm& op, const Call<T>& call);
template <class T>
void loops(const SyncBatchNormGradSums& op, const Call<T>& call);
template <class T>
void loops(const SyncBatchNormGrad& op, const Call<T>& call);
template <class T>
void loops(const SumOverRanks& op, const Call<T>& call);
template <class T>
void loops(const Relu& op, const Call<T>& call);
template <class T>
void loops(const ReluGrad& op, const Call<T>& call);
template <class T>
void loops(const Add& op, const Call<T>& call);
template <class T>
void loops(const Dropout& op, const Call<T>& call);
template <class T>
void loops(const MaxPool& op, const Call<T>& call);
template <class T>
void loops(const MaxPoolGrad& op, const Call<T>& call);
template <class T>
void loops(const AvgPool& op, const Call<T>& call);
template <class T>
void loops(const AvgPoolGrad& op, const Call<T>& call);
template <class T>
void loops(const LocalResponseNorm& op, const Call<T>& call);
template <class T>
void loops(const LocalResponseNormGrad& op, const Call<T>& call);
template <class T>
void loops(const Concat& op, const Call<T>& call);
template <class T>
void loops(const Slice& op, const Call<T>& call);
template <class T>
void loops(const Reshape& op, const Call<T>& call);
template <class T>
void loops(const Reorder& op, const Call<T>& call);
template <class T>
void loops(const Cast& op, const Call<T>& call);
template <class T>
void loops(const SoftmaxCrossEntropy& op, const Call<T>& call);
template <class T>
void loops(const SoftmaxCrossEntropyGrad& op, const Call<T>& call);

template <class T>
void loops(const ApplyOptimizer& op, const Call<T>& call);
template <class T>
void loops(const ApplyAverage& op, const Call<T>& call);
template <class T>
void loops(const ApplyStatistics& op, const Call<T>& call);
template <class T>
void loops(const SumOfSquares& op, const Call<T>& call);
template <class T>
void loops(const AddToSums& op, const Call<T>& call);
template <class T>
void loops(const NarrowValues& op, const Call<T>& call);
template <class T>
void loops(const WidenValues& op, const Call<T>& call);
template <class T>
void loops(const FindNotFinite& op, const Call<T>& call);
template <class T>
void loops(const FillStepHeader& op, const Call<T>& call);
template <class T>
void loops(const DecideUpdate& op, const Call<T>& call);

}  // namespace lockstep::reference

// Instantiates an operation's loops for both element types, at the end of the file that defines them.
#define LOCKSTEP_REFERENCE_LOOPS(Operation)                         \
  template void loops<float>(const Operation&, const Call<float>&); \
  template void loops<double>(const Operation&, const Call<double>&)
