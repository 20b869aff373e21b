// Operations that only move or convert elements.
#include <algorithm>

#include "backend/reference/compute.h"

namespace lockstep::reference {
namespace {

// A sample's elements from channel `c` on.
int64_t channel_offset(const Shape& shape, int64_t n, int64_t c) { return (n * shape.c() + c) * shape.h() * shape.w(); }

}  // namespace

template <class T>
void Reference<T>::compute(const Concat&, const Call<T>& call) {
  const Shape& out = call.out_shape(0);
  int64_t channel = 0;
  for (size_t k = 0; k < call.in.size(); ++k) {
    const Shape& in = call.in_shape(k);
    for (int64_t n = 0; n < in.n(); ++n) {
      std::copy_n(call.input(k) + channel_offset(in, n, 0), in.c() * in.h() * in.w(),
                  call.output(0) + channel_offset(out, n, channel));
    }
    channel += in.c();
  }
}

template <class T>
void Reference<T>::compute(const Slice& op, const Call<T>& call) {
  const Shape &in = call.in_shape(0), &out = call.out_shape(0);
  for (int64_t n = 0; n < in.n(); ++n) {
    std::copy_n(call.input(0) + channel_offset(in, n, op.begin), out.c() * out.h() * out.w(),
                call.output(0) + channel_offset(out, n, 0));
  }
}

// The output may be the memory of the input.
template <class T>
void Reference<T>::compute(const Reshape&, const Call<T>& call) {
  if (call.input(0) != call.output(0)) std::copy_n(call.input(0), call.in_shape(0).elements(), call.output(0));
}

template <class T>
void Reference<T>::compute(const Reorder&, const Call<T>& call) {
  std::copy_n(call.input(0), call.in_shape(0).elements(), call.output(0));
}

template <class T>
void Reference<T>::compute(const Cast& op, const Call<T>& call) {
  compute(CastMany{op.to}, call);
}

template <class T>
void Reference<T>::compute(const CastMany& op, const Call<T>& call) {
  for (size_t i = 0; i < call.in.size(); ++i) {
    const int64_t count = call.in_shape(i).elements();
    if (op.to == DType::f64) {
      std::copy_n(call.input(i), count, call.template output<double>(i));
    } else {
      std::transform(call.input(i), call.input(i) + count, call.template output<float>(i),
                     [](T value) { return static_cast<float>(value); });
    }
  }
}

// The executable adds up the copies of all ranks. The output may be the memory of the input.
template <class T>
void Reference<T>::compute(const SumOverRanks&, const Call<T>& call) {
  if (call.input(0) != call.output(0)) std::copy_n(call.input(0), call.in_shape(0).elements(), call.output(0));
}

LOCKSTEP_REFERENCE_COMPUTE(Concat);
LOCKSTEP_REFERENCE_COMPUTE(Slice);
LOCKSTEP_REFERENCE_COMPUTE(Reshape);
LOCKSTEP_REFERENCE_COMPUTE(Reorder);
LOCKSTEP_REFERENCE_COMPUTE(Cast);
LOCKSTEP_REFERENCE_COMPUTE(CastMany);
LOCKSTEP_REFERENCE_COMPUTE(SumOverRanks);

}  // namespace lockstep::reference
