#include <barrier>
#include <thread>

#include "graph/passes/rewrite.h"
#include "lockstep/base/random.h"
#include "test/catch.h"
#include "test/graph/net.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

// Sums over threads that each play a rank, float64.
class Ranks {
 public:
  explicit Ranks(int count) : count_(count), barrier_(count), sums_(static_cast<size_t>(count)) {}

  RankSum of(int rank) {
    return [this, rank](Stream&, void* values, int64_t elements, const std::string& name) {
      auto* mine = static_cast<double*>(values);
      sums_[static_cast<size_t>(rank)] = {name, std::vector<double>(mine, mine + elements)};
      barrier_.arrive_and_wait();
      for (int64_t i = 0; i < elements; ++i) {
        mine[i] = 0;
        for (const Sum& sum : sums_) mine[i] += sum.values.at(static_cast<size_t>(i));
      }
      same_names_ = same_names_ && sums_.front().name == name;
      barrier_.arrive_and_wait();
    };
  }
  template <class Body>
  void run(const Body& body) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < count_; ++rank) threads.emplace_back([&, rank] { body(rank); });
  }
  bool same_names() const { return same_names_; }

 private:
  struct Sum {
    std::string name;
    std::vector<double> values;
  };
  const int count_;
  std::barrier<> barrier_;
  std::vector<Sum> sums_;
  std::atomic<bool> same_names_{true};
};

// Images, labels and the place in the sample stream of a rank that has samples begin .. begin + n of a net's batch.
void take_samples(Net& net, const Net& joint, int64_t begin) {
  for (const Value& v : net.graph().values) {
    if (v.role != ValueRole::external || v.external == ExternalInput::step) continue;
    const int64_t elements = v.desc.shape.elements() / v.desc.shape[0];
    const auto all =
        joint.read(joint.arenas().external[v.external], v.desc.dtype, (begin + v.desc.shape[0]) * elements);
    net.set(v.external, std::span(all).subspan(static_cast<size_t>(begin * elements)));
  }
  const auto key = joint.read(joint.arenas().external.step, DType::i32, 4);
  net.set(ExternalInput::step, std::vector<double>{key[0], key[1], key[2] + static_cast<double>(begin), key[3]});
}

}  // namespace

TEST_CASE("on one rank nothing is synchronized") {
  Graph graph = small_net(small_options());
  CHECK(synchronize_batch_norms(graph, 1) == 0);
  CHECK(count_nodes<SyncBatchNorm>(graph) == 0);
}

TEST_CASE("on several ranks every batch norm takes its sums from all of them") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Graph graph = random_net(seed, {.batch_size = 2, .image_size = 4, .classes = 3});
    const int norms = count_nodes<BatchNorm>(graph);
    CHECK(synchronize_batch_norms(graph, 3) == norms);
    CHECK(is_well_formed(graph));
    CHECK(count_nodes<BatchNorm>(graph) == 0);
    CHECK(count_nodes<SyncBatchNorm>(graph) == norms);
    CHECK(count_nodes<SumOverRanks>(graph) == norms);
    CHECK(count_nodes<BatchMoments>(graph) == norms);
  }
}

TEST_CASE("synchronized ranks compute the gradients and moments of one rank with all their samples") {
  const auto backend = make_backend("reference", {.threads = 1});
  for (const bool rewrites : {false, true}) {
    for (const int ranks : {2, 3}) {
      INFO(ranks << " ranks, rewrites " << rewrites);
      ModelOptions options = small_options();
      const int64_t own = options.batch_size;
      options.batch_size = own * ranks;
      Net joint(*backend, small_net(options), {.rewrites = rewrites});
      joint.fill_at_random(7);
      joint.forward();
      joint.backward();
      options.batch_size = own;
      std::vector<std::unique_ptr<Net>> nets;
      for (int rank = 0; rank < ranks; ++rank) {
        nets.push_back(std::make_unique<Net>(*backend, small_net(options),
                                             CompileOptions{.rewrites = rewrites, .synchronized_ranks = ranks}));
        nets.back()->fill_at_random(7);
        take_samples(*nets.back(), joint, rank * own);
      }
      Ranks group(ranks);
      group.run([&](int rank) {
        nets[static_cast<size_t>(rank)]->forward(group.of(rank));
        nets[static_cast<size_t>(rank)]->backward(group.of(rank));
      });
      CHECK(group.same_names());
      // The whole arena: gradients, then moments. The nets lay it out alike.
      const ModelState& state = joint.state();
      const int64_t elements = state.trained_elements + state.moment_elements;
      const auto expected = joint.read(state.gradients.data(), DType::f64, elements);
      std::vector<double> sums(expected.size());
      double loss = 0;
      for (const auto& net : nets) {
        const auto own_values = net->read(net->state().gradients.data(), DType::f64, elements);
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += own_values[i];
        loss += net->loss();
      }
      CHECK(loss == Approx(joint.loss()).epsilon(1e-12));
      for (size_t i = 0; i < sums.size(); ++i) CHECK(sums[i] == Approx(expected[i]).epsilon(1e-8).margin(1e-11));
    }
  }
}

TEST_CASE("a synchronized graph does not run without its ranks") {
  const auto backend = make_backend("reference", {});
  Net net(*backend, small_net(small_options()), {.synchronized_ranks = 2});
  net.fill_at_random(1);
  CHECK_THROWS_WITH(net.forward(), ContainsSubstring("stem.bn.all_sums runs without other ranks"));
}
