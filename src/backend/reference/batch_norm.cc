// Batch normalization (Ioffe and Szegedy 2015): training, gradient, inference, and the moments that ranks sum.
#include <cmath>

#include "backend/reference/compute.h"

namespace lockstep::reference {
namespace {

// Passes NaN on, so that a diverged run is noticed.
double relu(double value) { return value <= 0 ? 0 : value; }

struct Moments {
  double mean, var;
};

// The variance is that of all values, summed around their mean.
template <class T>
Moments moments_of(const T* x, const Channel& channel) {
  double sum = 0, squares = 0;
  channel.for_each([&](int64_t i) { sum += x[i]; });
  const double mean = sum / channel.count();
  channel.for_each([&](int64_t i) { squares += (x[i] - mean) * (x[i] - mean); });
  return {mean, squares / channel.count()};
}

struct ChannelInputs {
  int64_t channel;
  size_t first;  // index of the scale; shift and running mean follow it
};

// Computes the vectors of BatchNormOfSums for one channel from its moments.
template <class Operation, class T>
void put_vectors(const Operation& op, const Call<T>& call, const ChannelInputs& in, const Moments& moments) {
  const int64_t c = in.channel;
  const auto [mean, var] = moments;
  const double inverse = 1 / std::sqrt(var + op.epsilon), factor = call.input(in.first)[c] * inverse;
  const double offset = call.input(in.first + 1)[c] - double{static_cast<T>(factor)} * mean;
  const double d = mean - call.input(in.first + 2)[c];
  const auto samples = static_cast<double>(op.samples);
  const double results[] = {mean, var, inverse, factor, factor, offset, samples * d, samples * (var + d * d)};
  for (size_t i = 0; i < std::size(results); ++i) call.output(i)[c] = static_cast<T>(results[i]);
}

}  // namespace

template <class T>
void Reference<T>::compute(const BatchNorm& op, const Call<T>& call) {
  const Shape& shape = call.in_shape(0);
  const T *x = call.input(0), *scale = call.input(1), *shift = call.input(2);
  T* y = call.output(0);
  uint8_t* saved = call.template output<uint8_t>(3);
#pragma omp parallel for num_threads(call.threads)
  for (int64_t c = 0; c < shape.c(); ++c) {
    const Channel channel(shape, c);
    const Moments moments = moments_of(x, channel);
    const double factor = scale[c] / std::sqrt(moments.var + op.epsilon);
    channel.for_each([&](int64_t i) {
      const double value = (x[i] - moments.mean) * factor + shift[c];
      y[i] = static_cast<T>(op.relu ? relu(value) : value);
      if (op.relu) saved[i] = value > 0;
    });
    call.output(1)[c] = static_cast<T>(moments.mean);
    call.output(2)[c] = static_cast<T>(moments.var);
  }
}

// dx may be the memory of dy.
template <class T>
void Reference<T>::compute(const BatchNormGrad& op, const Call<T>& call) {
  const Shape& shape = call.in_shape(0);
  const T *x = call.input(0), *dy = call.input(1), *scale = call.input(2);
  const uint8_t* saved = call.template input<uint8_t>(5);
  T* dx = call.output(0);
#pragma omp parallel for num_threads(call.threads)
  for (int64_t c = 0; c < shape.c(); ++c) {
    const Channel channel(shape, c);
    const double mean = call.input(3)[c];
    const double inverse_deviation = 1 / std::sqrt(call.input(4)[c] + op.epsilon);
    auto gradient = [&](int64_t i) { return op.relu && !saved[i] ? 0.0 : double{dy[i]}; };
    auto normalized = [&](int64_t i) { return (x[i] - mean) * inverse_deviation; };
    double dscale = 0, dshift = 0;
    channel.for_each([&](int64_t i) {
      dshift += gradient(i);
      dscale += gradient(i) * normalized(i);
    });
    const double factor = scale[c] * inverse_deviation;
    channel.for_each([&](int64_t i) {
      dx[i] = static_cast<T>(factor * (gradient(i) - (dshift + normalized(i) * dscale) / channel.count()));
    });
    call.output(1)[c] = static_cast<T>(dscale);
    call.output(2)[c] = static_cast<T>(dshift);
  }
}

template <class T>
void Reference<T>::compute(const BatchNormInference& op, const Call<T>& call) {
  const Shape& shape = call.in_shape(0);
  const T *x = call.input(0), *scale = call.input(1), *shift = call.input(2), *mean = call.input(3),
          *var = call.input(4);
  T* y = call.output(0);
#pragma omp parallel for num_threads(call.threads)
  for (int64_t c = 0; c < shape.c(); ++c) {
    const double factor = scale[c] / std::sqrt(var[c] + op.epsilon);
    Channel(shape, c).for_each([&](int64_t i) {
      const double value = (x[i] - double{mean[c]}) * factor + shift[c];
      y[i] = static_cast<T>(op.relu ? relu(value) : value);
    });
  }
}

// dx may be the memory of dy.
template <class T>
void Reference<T>::compute(const BatchNormInferenceGrad& op, const Call<T>& call) {
  const Shape& shape = call.in_shape(0);
  const T *x = call.input(0), *dy = call.input(1), *scale = call.input(2), *mean = call.input(3), *var = call.input(4),
          *shift = call.input(5);
  T* dx = call.output(0);
#pragma omp parallel for num_threads(call.threads)
  for (int64_t c = 0; c < shape.c(); ++c) {
    const double deviation = std::sqrt(var[c] + op.epsilon), factor = scale[c] / deviation;
    double dscale = 0, dshift = 0;
    Channel(shape, c).for_each([&](int64_t i) {
      const double distance = x[i] - double{mean[c]};
      const double gradient = op.relu && distance * factor + shift[c] <= 0 ? 0.0 : double{dy[i]};
      dshift += gradient;
      dscale += gradient * distance / deviation;
      dx[i] = static_cast<T>(factor * gradient);
    });
    call.output(1)[c] = static_cast<T>(dscale);
    call.output(2)[c] = static_cast<T>(dshift);
  }
}

template <class T>
void Reference<T>::compute(const BatchMoments& op, const Call<T>& call) {
  const auto samples = static_cast<double>(op.samples);
  for (int64_t c = 0; c < call.in_shape(0).elements(); ++c) {
    const double d = double{call.input(0)[c]} - call.input(2)[c];
    call.output(0)[c] = static_cast<T>(samples * d);
    call.output(1)[c] = static_cast<T>(samples * (call.input(1)[c] + d * d));
  }
}

template <class T>
void Reference<T>::compute(const SyncBatchNormSums&, const Call<T>& call) {
  const Shape& shape = call.in_shape(0);
  const T *x = call.input(0), *running_mean = call.input(1);
#pragma omp parallel for num_threads(call.threads)
  for (int64_t c = 0; c < shape.c(); ++c) {
    double sum = 0, squares = 0;
    Channel(shape, c).for_each([&](int64_t i) {
      const double d = double{x[i]} - running_mean[c];
      sum += d;
      squares += d * d;
    });
    call.output(0)[c] = static_cast<T>(sum);
    call.output(0)[shape.c() + c] = static_cast<T>(squares);
  }
}

template <class T>
void Reference<T>::compute(const SyncBatchNorm& op, const Call<T>& call) {
  const Shape& shape = call.in_shape(0);
  const T *x = call.input(0), *scale = call.input(1), *shift = call.input(2), *sums = call.input(4);
  T* y = call.output(0);
  uint8_t* saved = call.template output<uint8_t>(3);
  const auto values = static_cast<double>(op.values);
#pragma omp parallel for num_threads(call.threads)
  for (int64_t c = 0; c < shape.c(); ++c) {
    const double distance = sums[c] / values, mean = call.input(3)[c] + distance;
    const double var = relu(sums[shape.c() + c] / values - distance * distance);
    const double factor = scale[c] / std::sqrt(var + op.epsilon);
    Channel(shape, c).for_each([&](int64_t i) {
      const double value = (x[i] - mean) * factor + shift[c];
      y[i] = static_cast<T>(op.relu ? relu(value) : value);
      if (op.relu) saved[i] = value > 0;
    });
    call.output(1)[c] = static_cast<T>(mean);
    call.output(2)[c] = static_cast<T>(var);
  }
}

template <class T>
void Reference<T>::compute(const SyncBatchNormGradSums& op, const Call<T>& call) {
  const Shape& shape = call.in_shape(0);
  const T *x = call.input(0), *dy = call.input(1);
  const uint8_t* saved = call.template input<uint8_t>(5);
#pragma omp parallel for num_threads(call.threads)
  for (int64_t c = 0; c < shape.c(); ++c) {
    const double mean = call.input(3)[c], inverse_deviation = 1 / std::sqrt(call.input(4)[c] + op.epsilon);
    double dscale = 0, dshift = 0;
    Channel(shape, c).for_each([&](int64_t i) {
      const double gradient = op.relu && !saved[i] ? 0.0 : double{dy[i]};
      dshift += gradient;
      dscale += gradient * (x[i] - mean) * inverse_deviation;
    });
    call.output(0)[c] = call.output(2)[c] = static_cast<T>(dscale);
    call.output(1)[c] = call.output(2)[shape.c() + c] = static_cast<T>(dshift);
  }
}

// dx may be the memory of dy.
template <class T>
void Reference<T>::compute(const SyncBatchNormGrad& op, const Call<T>& call) {
  const Shape& shape = call.in_shape(0);
  const T *x = call.input(0), *dy = call.input(1), *scale = call.input(2), *sums = call.input(6);
  const uint8_t* saved = call.template input<uint8_t>(5);
  const auto values = static_cast<double>(op.values);
#pragma omp parallel for num_threads(call.threads)
  for (int64_t c = 0; c < shape.c(); ++c) {
    const double mean = call.input(3)[c], inverse_deviation = 1 / std::sqrt(call.input(4)[c] + op.epsilon);
    const double dscale = sums[c], dshift = sums[shape.c() + c], factor = scale[c] * inverse_deviation;
    Channel(shape, c).for_each([&](int64_t i) {
      const double gradient = op.relu && !saved[i] ? 0.0 : double{dy[i]};
      const double normalized = (x[i] - mean) * inverse_deviation;
      call.output(0)[i] = static_cast<T>(factor * (gradient - (dshift + normalized * dscale) / values));
    });
  }
}

template <class T>
void Reference<T>::compute(const BatchNormOfSums& op, const Call<T>& call) {
  const auto values = static_cast<double>(op.values);
  for (int64_t c = 0; c < call.in_shape(2).elements(); ++c) {
    const double mean = call.input(0)[op.begin + c] / values;
    put_vectors(op, call, {.channel = c, .first = 2}, {mean, relu(call.input(1)[op.begin + c] / values - mean * mean)});
  }
}

template <class T>
void Reference<T>::compute(const BatchNormStatistics& op, const Call<T>& call) {
  const Shape& shape = call.in_shape(0);
  const T* x = call.input(0);
  for (int64_t c = 0; c < shape.c(); ++c) {
    put_vectors(op, call, {.channel = c, .first = 1}, moments_of(x, Channel(shape, c)));
  }
}

// dx may be the memory of dy.
template <class T>
void Reference<T>::compute(const BatchNormOfSumsGrad& op, const Call<T>& call) {
  const Shape& shape = call.in_shape(0);
  const T *x = call.input(0), *dy = call.input(1), *shift = call.input(2);
  for (int64_t c = 0; c < shape.c(); ++c) {
    const Channel channel(shape, c);
    const double mean = call.input(3)[c], inverse = 1 / std::sqrt(call.input(4)[c] + op.epsilon);
    const double factor = call.input(5)[c];
    auto gradient = [&](int64_t i) { return op.relu && (x[i] - mean) * factor + shift[c] <= 0 ? 0.0 : double{dy[i]}; };
    double dscale = 0, dshift = 0;
    channel.for_each([&](int64_t i) {
      dshift += gradient(i);
      dscale += gradient(i) * (x[i] - mean) * inverse;
    });
    channel.for_each([&](int64_t i) {
      const double mean_gradient = (dshift + (x[i] - mean) * inverse * dscale) / channel.count();
      call.output(0)[i] = static_cast<T>(factor * (gradient(i) - mean_gradient));
    });
    call.output(1)[c] = static_cast<T>(dscale);
    call.output(2)[c] = static_cast<T>(dshift);
  }
}

// dx may be the memory of dz.
template <class T>
void Reference<T>::compute(const BatchNormGradApply&, const Call<T>& call) {
  const Shape& shape = call.in_shape(0);
  for (int64_t c = 0; c < shape.c(); ++c) {
    const double by_dz = call.input(2)[c], by_x = call.input(3)[c], constant = call.input(4)[c];
    Channel(shape, c).for_each([&](int64_t i) {
      call.output(0)[i] = static_cast<T>(by_dz * call.input(0)[i] + by_x * call.input(1)[i] + constant);
    });
  }
}

template <class T>
void Reference<T>::compute(const BatchNormGradSums&, const Call<T>& call) {
  const T *y = call.input(0), *dy = call.input(1), *shift = call.input(2);
  for (int64_t c = 0; c < call.in_shape(0).c(); ++c) {
    const Channel channel(call.in_shape(0), c);
    double sum = 0, normalized = 0;
    channel.for_each([&](int64_t i) {
      const double gradient = y[i] > 0 ? double{dy[i]} : 0.0;
      sum += gradient;
      normalized += gradient * (double{y[i]} - shift[c]);
    });
    call.output(0)[c] = static_cast<T>(sum);
    call.output(1)[c] = static_cast<T>(-normalized / channel.count());
    call.output(2)[c] = static_cast<T>((shift[c] * normalized - sum) / channel.count());
  }
}

// dx may be the memory of dy.
template <class T>
void Reference<T>::compute(const BatchNormGradOfSums& op, const Call<T>& call) {
  const T *x = call.input(0), *dy = call.input(1);
  for (int64_t c = 0; c < call.in_shape(0).c(); ++c) {
    const double shift = call.input(2)[c], mean = call.input(3)[c], factor = call.input(4)[c];
    const double by_y = call.input(5)[op.begin + c], constant = call.input(6)[op.begin + c];
    Channel(call.in_shape(0), c).for_each([&](int64_t i) {
      const double u = factor * (x[i] - mean) + shift, gradient = op.relu && u <= 0 ? 0.0 : double{dy[i]};
      call.output(0)[i] = static_cast<T>(factor * (gradient + by_y * u + constant));
    });
  }
}

LOCKSTEP_REFERENCE_COMPUTE(BatchNorm);
LOCKSTEP_REFERENCE_COMPUTE(BatchNormGrad);
LOCKSTEP_REFERENCE_COMPUTE(BatchNormInference);
LOCKSTEP_REFERENCE_COMPUTE(BatchNormInferenceGrad);
LOCKSTEP_REFERENCE_COMPUTE(BatchMoments);
LOCKSTEP_REFERENCE_COMPUTE(SyncBatchNormSums);
LOCKSTEP_REFERENCE_COMPUTE(SyncBatchNorm);
LOCKSTEP_REFERENCE_COMPUTE(SyncBatchNormGradSums);
LOCKSTEP_REFERENCE_COMPUTE(SyncBatchNormGrad);
LOCKSTEP_REFERENCE_COMPUTE(BatchNormOfSums);
LOCKSTEP_REFERENCE_COMPUTE(BatchNormStatistics);
LOCKSTEP_REFERENCE_COMPUTE(BatchNormOfSumsGrad);
LOCKSTEP_REFERENCE_COMPUTE(BatchNormGradApply);
LOCKSTEP_REFERENCE_COMPUTE(BatchNormGradSums);
LOCKSTEP_REFERENCE_COMPUTE(BatchNormGradOfSums);

}  // namespace lockstep::reference
