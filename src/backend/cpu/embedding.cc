// Embedding sums: rows of a table, weighted and added. Bound by memory; a sample's cost is its number of ids.
#include "backend/cpu/kernels.h"
#include "backend/cpu/loops.h"

namespace lockstep::cpu {
namespace {

constexpr int64_t kGrain = 16;  // samples or rows; fewer are not worth a thread

struct Bags {
  const int32_t* ids;   // [N,L]
  const float* values;  // [N,L]
  int64_t samples, max_ids;
  int64_t width;  // D
};

LOCKSTEP_VECTORIZED void sum_bags(const Bags& bags, const float* table, const float* bias, float* y, Range samples) {
  for (int64_t n = samples.begin; n < samples.end; ++n) {
    float* const sum = y + n * bags.width;
    std::copy_n(bias, bags.width, sum);
    for (int64_t l = n * bags.max_ids; l < (n + 1) * bags.max_ids && bags.ids[l] >= 0; ++l) {
      const float* const row = table + bags.ids[l] * bags.width;
      const float value = bags.values[l];
      for (int64_t d = 0; d < bags.width; ++d) sum[d] += value * row[d];
    }
  }
}

// Writes only the rows of the table in `rows`, in the order of the samples, so that the result does not depend on the
// number of threads.
LOCKSTEP_VECTORIZED void scatter_bags(const Bags& bags, const float* dy, float* dtable, Range rows) {
  std::fill_n(dtable + rows.begin * bags.width, rows.size() * bags.width, 0.0F);
  for (int64_t n = 0; n < bags.samples; ++n) {
    const float* const gradient = dy + n * bags.width;
    for (int64_t l = n * bags.max_ids; l < (n + 1) * bags.max_ids && bags.ids[l] >= 0; ++l) {
      const int64_t id = bags.ids[l];
      if (id < rows.begin || id >= rows.end) continue;
      float* const row = dtable + id * bags.width;
      const float value = bags.values[l];
      for (int64_t d = 0; d < bags.width; ++d) row[d] += value * gradient[d];
    }
  }
}

LOCKSTEP_VECTORIZED void sum_rows(const float* dy, int64_t samples, int64_t width, float* dbias) {
  std::fill_n(dbias, width, 0.0F);
  for (int64_t n = 0; n < samples; ++n) {
    for (int64_t d = 0; d < width; ++d) dbias[d] += dy[n * width + d];
  }
}

Bags bags_of(const KernelArgs& args, const Shape& ids, int64_t width) {
  return {input<int32_t>(args, 1), input(args, 2), ids[0], ids[1], width};
}

}  // namespace

std::unique_ptr<Kernel> compile(const Context& context, const EmbeddingBag&, Descs inputs, Descs) {
  const int threads = context.threads;
  return make_loop_kernel([threads, ids = inputs[1].shape, width = inputs[0].shape[1]](const KernelArgs& args) {
    const Bags bags = bags_of(args, ids, width);
    parallel_ranges(threads, bags.samples, kGrain, [&](Range samples, int) {
      sum_bags(bags, input(args, 0), input(args, 3), output(args, 0), samples);
    });
  });
}

std::unique_ptr<Kernel> compile(const Context& context, const EmbeddingBagGrad& op, Descs inputs, Descs) {
  const int threads = context.threads;
  return make_loop_kernel(
      [threads, rows = op.vocabulary, ids = inputs[1].shape, width = inputs[0].shape[1]](const KernelArgs& args) {
        const Bags bags = bags_of(args, ids, width);
        parallel_ranges(threads, rows, kGrain,
                        [&](Range range, int) { scatter_bags(bags, input(args, 0), output(args, 0), range); });
        sum_rows(input(args, 0), bags.samples, width, output(args, 1));
      });
}

}  // namespace lockstep::cpu
