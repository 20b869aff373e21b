#include "lockstep/graph/memory_plan.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr int64_t kAlignment = 64;
// The alignment of workspaces and of values larger than a page, which GPU libraries expect.
constexpr int64_t kLargeAlignment = 256;
constexpr int64_t kLarge = 4096;
constexpr int32_t kForever = std::numeric_limits<int32_t>::max();

int64_t round_up(int64_t bytes, int64_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

// A range of the activation arena that is in use from schedule position `first` to `last`, both included.
struct Block {
  int32_t value = -1;      // representative of the class; -1: workspace
  int32_t workspace = -1;  // schedule position
  int32_t first = 0, last = 0;
  int64_t bytes = 0, offset = 0;
  int64_t alignment() const { return workspace >= 0 || bytes >= kLarge ? kLargeAlignment : kAlignment; }
  bool lives_with(const Block& other) const { return first <= other.last && other.first <= last; }
  bool overlaps(const Block& other) const {
    return offset < other.offset + other.bytes && other.offset < offset + bytes;
  }
};

class Classes {
 public:
  explicit Classes(const PlanInput& in) : in_(in), parent_(in.graph.values.size()), last_(parent_.size(), -1) {
    std::iota(parent_.begin(), parent_.end(), 0);
    for (size_t p = 0; p < in.schedule.order.size(); ++p) {
      const Node& node = in.graph.node(in.schedule.order[p]);
      for (ValueId v : node.inputs) last_[v] = static_cast<int32_t>(p);
      for (ValueId v : node.outputs) last_[v] = static_cast<int32_t>(p);
    }
    for (size_t v = 0; v < parent_.size(); ++v) {
      if (in.graph.values[v].kept) last_[v] = kForever;
    }
    merge_all();
  }

  int32_t find(ValueId v) const {
    while (parent_[v] != v) v = parent_[v];
    return v;
  }
  int32_t last_use(ValueId v) const { return last_[find(v)]; }

 private:
  bool in_activations(ValueId v) const {
    const Value& value = in_.graph.value(v);
    return value.role == ValueRole::computed && value.gradient_of < 0 && value.moment_of < 0 && value.copy_of < 0;
  }

  void merge(ValueId into, ValueId v) {
    const int32_t root = find(into);
    last_[root] = std::max(last_[root], last_[v]);
    parent_[v] = root;
  }

  void merge_all() {
    for (ValueId v = 0; v < static_cast<ValueId>(parent_.size()); ++v) {
      const ValueId whole = in_.graph.value(v).view_of;
      if (whole < 0) continue;
      require(in_activations(v) && in_activations(whole) && in_.graph.value(whole).view_of < 0,
              "{} cannot be a view of {}", in_.graph.value(v).name, in_.graph.value(whole).name);
      merge(whole, v);
    }
    for (size_t p = 0; p < in_.schedule.order.size(); ++p) {
      const Node& node = in_.graph.node(in_.schedule.order[p]);
      const ValueId out = node.outputs[0];
      if (!in_activations(out)) continue;
      if (std::holds_alternative<Reshape>(node.op)) {
        merge(node.inputs[0], out);  // also if the input is a view itself
        continue;
      }
      const int k = in_place_input(node.op);
      if (k >= 0 && may_overwrite(node, node.inputs[k], static_cast<int32_t>(p))) {
        merge(node.inputs[k], out);
      }
    }
  }

  // Returns whether the output may overwrite the input: nothing reads the input's memory later, the node reads it
  // through one operand only, and the output fits.
  bool may_overwrite(const Node& node, ValueId input, int32_t position) const {
    const ValueId root = find(input), out = node.outputs[0];
    if (!in_activations(root) || last_use(input) > position) return false;
    int uses = 0;
    for (ValueId v : node.inputs) uses += find(v) == root;
    const Value& from = in_.graph.value(input);
    const Value& to = in_.graph.value(out);
    const bool view = from.view_of >= 0 || to.view_of >= 0;  // other values share that memory
    return !view && uses == 1 && from.desc == to.desc && in_.storage_bytes[input] == in_.storage_bytes[out];
  }

  const PlanInput& in_;
  std::vector<int32_t> parent_;
  std::vector<int32_t> last_;  // by value, then by representative: the last position that uses the class
};

Placement fixed_placement(const PlanInput& in, const Value& v) {
  auto at = [&](Arena arena, int64_t element) {
    return Placement{arena, element * static_cast<int64_t>(dtype_bytes(v.desc.dtype))};
  };
  auto offset = [&](ParameterId id) { return in.layout.offset[id]; };
  if (v.role == ValueRole::parameter) return at(Arena::parameters, offset(v.parameter));
  if (v.role == ValueRole::statistic) return at(Arena::statistics, offset(v.parameter));
  if (v.role == ValueRole::external) return {Arena::external, static_cast<int64_t>(v.external)};
  if (v.gradient_of >= 0) return at(Arena::gradients, offset(v.gradient_of));
  if (v.moment_of >= 0) return at(Arena::gradients, in.layout.trained_elements + offset(v.moment_of));
  return {};
}

int64_t view_offset(const PlanInput& in, const Value& v) {
  return v.view_of < 0 ? 0 : channel_offset_bytes(in.graph.value(v.view_of).desc, v.view_channel);
}

std::vector<Block> collect_blocks(const PlanInput& in, const Classes& classes) {
  std::vector<Block> blocks;
  std::vector<bool> seen(in.graph.values.size(), false);
  for (size_t p = 0; p < in.schedule.order.size(); ++p) {
    const auto position = static_cast<int32_t>(p);
    for (ValueId v : in.graph.node(in.schedule.order[p]).outputs) {
      const int32_t root = classes.find(v);
      if (seen[root] || fixed_placement(in, in.graph.value(root)).arena != Arena::none) continue;
      seen[root] = true;  // the lifetime of a class starts when its first output is written
      blocks.push_back({.value = root,
                        .first = position,
                        .last = classes.last_use(root),
                        .bytes = round_up(static_cast<int64_t>(in.storage_bytes[root]), kAlignment)});
    }
    if (in.workspace_bytes[p] > 0) {
      blocks.push_back({.workspace = position,
                        .first = position,
                        .last = position,
                        .bytes = round_up(static_cast<int64_t>(in.workspace_bytes[p]), kAlignment)});
    }
  }
  return blocks;
}

// Returns the lowest offset at which `block` overlaps none of `placed`, all of which live at the same time.
int64_t lowest_gap(std::vector<const Block*>& placed, const Block& block) {
  std::sort(placed.begin(), placed.end(), [](const Block* a, const Block* b) { return a->offset < b->offset; });
  int64_t offset = 0;
  for (const Block* other : placed) {
    if (other->offset >= offset + block.bytes) break;
    offset = std::max(offset, round_up(other->offset + other->bytes, block.alignment()));
  }
  return offset;
}

void place_blocks(std::vector<Block>& blocks) {
  std::stable_sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) { return a.bytes > b.bytes; });
  for (size_t i = 0; i < blocks.size(); ++i) {
    std::vector<const Block*> neighbours;
    for (size_t j = 0; j < i; ++j) {
      if (blocks[i].lives_with(blocks[j])) neighbours.push_back(&blocks[j]);
    }
    blocks[i].offset = lowest_gap(neighbours, blocks[i]);
  }
}

}  // namespace

MemoryPlan plan_memory(const PlanInput& in) {
  const Classes classes(in);
  std::vector<Block> blocks = collect_blocks(in, classes);
  place_blocks(blocks);

  MemoryPlan plan;
  plan.values.resize(in.graph.values.size());
  plan.workspaces.resize(in.schedule.order.size());
  std::vector<Placement> of_class(in.graph.values.size());
  for (const Block& b : blocks) {
    const Placement at{Arena::activations, b.offset};
    (b.value >= 0 ? of_class[b.value] : plan.workspaces[b.workspace]) = at;
    plan.activation_bytes = std::max(plan.activation_bytes, b.offset + b.bytes);
  }
  for (ValueId v = 0; v < static_cast<ValueId>(in.graph.values.size()); ++v) {
    const int32_t root = classes.find(v);
    const Placement fixed = fixed_placement(in, in.graph.value(root));
    plan.alias_class.push_back(root);
    Placement& at = plan.values[v];
    at = fixed.arena != Arena::none ? fixed : of_class[root];
    if (in.graph.value(v).copy_of >= 0) {
      at = {Arena::copies, plan.copy_bytes};
      plan.copy_bytes += round_up(static_cast<int64_t>(in.storage_bytes[v]), kLargeAlignment);
    }
    if (at.arena == Arena::activations) at.offset_bytes += view_offset(in, in.graph.value(v));
  }
  return plan;
}

namespace {

// Recomputes lifetimes, from the nodes only: for a class from the first write to the last use of any member, and for
// workspaces.
std::vector<Block> lives_of(const PlanInput& in, const MemoryPlan& plan) {
  std::vector<Block> life(in.graph.values.size());
  std::vector<Block> blocks;
  auto touch = [&](ValueId v, int32_t position) {
    const Placement& at = plan.values[v];
    if (at.arena != Arena::activations) return;
    Block& b = life[plan.alias_class[static_cast<size_t>(v)]];
    const int64_t start = at.offset_bytes - view_offset(in, in.graph.value(v));
    if (b.value < 0) {
      b.first = position;
      b.value = v;
      b.offset = start;
    }
    require(start == b.offset, "{} and {} share memory but lie apart", in.graph.value(v).name,
            in.graph.value(b.value).name);
    b.bytes = std::max(b.bytes, static_cast<int64_t>(in.storage_bytes[v]));
    b.last = in.graph.value(v).kept ? kForever : std::max(b.last, position);
  };
  for (size_t p = 0; p < in.schedule.order.size(); ++p) {
    const Node& node = in.graph.node(in.schedule.order[p]);
    const auto position = static_cast<int32_t>(p);
    for (ValueId v : node.inputs) touch(v, position);
    for (ValueId v : node.outputs) touch(v, position);
    if (in.workspace_bytes[p] == 0) continue;
    blocks.push_back({.workspace = position,
                      .first = position,
                      .last = position,
                      .bytes = static_cast<int64_t>(in.workspace_bytes[p]),
                      .offset = plan.workspaces[p].offset_bytes});
  }
  std::copy_if(life.begin(), life.end(), std::back_inserter(blocks), [](const Block& b) { return b.value >= 0; });
  return blocks;
}

void verify_blocks(const PlanInput& in, const MemoryPlan& plan, const std::vector<Block>& blocks) {
  auto name = [&](const Block& b) {
    return b.value >= 0 ? in.graph.value(b.value).name : fmt::format("the workspace of step {}", b.workspace);
  };
  for (size_t i = 0; i < blocks.size(); ++i) {
    require(blocks[i].offset % blocks[i].alignment() == 0, "{} lies at byte {}", name(blocks[i]), blocks[i].offset);
    require(blocks[i].offset >= 0 && blocks[i].offset + blocks[i].bytes <= plan.activation_bytes,
            "{} lies outside the arena", name(blocks[i]));
    for (size_t j = 0; j < i; ++j) {
      require(!blocks[i].lives_with(blocks[j]) || !blocks[i].overlaps(blocks[j]), "{} and {} overlap", name(blocks[i]),
              name(blocks[j]));
    }
  }
}

// Tracks what the memory of each class contains while the schedule is replayed: values and the channels that they fill.
class Contents {
 public:
  Contents(const PlanInput& in, const MemoryPlan& plan) : in_(in), plan_(plan), shows_(plan.values.size()) {
    std::iota(shows_.begin(), shows_.end(), 0);
    held_.resize(shows_.size());
  }

  // Requires that the value can be read: it is in memory itself, or the value of which it is a view.
  void expect(ValueId v, const std::string& reader) const {
    if (plan_.values[index(v)].arena != Arena::activations) return;
    const Channels channels = channels_of(v);
    ValueId now = -1;
    for (const Held& held : held_[class_of(v)]) {
      if (!held.channels.overlap(channels)) continue;
      now = held.value;
      const ValueId whole = in_.graph.value(v).view_of;
      const bool right = now == shows_[index(v)] || (whole >= 0 && now == shows_[index(whole)]);
      if (right && held.channels.cover(channels)) return;
      break;
    }
    require(false, "{} reads {}, whose memory holds {}", reader, in_.graph.value(v).name,
            now < 0 ? "nothing" : in_.graph.value(now).name);
  }

  void write(const Node& node, ValueId v) {
    const bool same_class = plan_.alias_class[index(v)] == plan_.alias_class[index(node.inputs[0])];
    if (std::holds_alternative<Reshape>(node.op) && same_class) shows_[index(v)] = shows_[index(node.inputs[0])];
    if (std::holds_alternative<Slice>(node.op) && in_.graph.value(v).view_of == node.inputs[0]) return;
    const Channels channels = channels_of(v);
    std::vector<Held> kept;
    for (const Held& held : held_[class_of(v)]) {
      const Held before{{held.channels.begin, std::min(held.channels.end, channels.begin)}, held.value};
      const Held after{{std::max(held.channels.begin, channels.end), held.channels.end}, held.value};
      if (before.channels.begin < before.channels.end) kept.push_back(before);
      if (after.channels.begin < after.channels.end) kept.push_back(after);
    }
    kept.push_back({channels, shows_[index(v)]});
    held_[class_of(v)] = std::move(kept);
  }

 private:
  struct Channels {
    int64_t begin = 0, end = 0;
    bool overlap(const Channels& other) const { return begin < other.end && other.begin < end; }
    bool cover(const Channels& other) const { return begin <= other.begin && other.end <= end; }
  };
  struct Held {
    Channels channels;
    ValueId value = -1;
  };

  static size_t index(ValueId v) { return static_cast<size_t>(v); }
  size_t class_of(ValueId v) const { return static_cast<size_t>(plan_.alias_class[index(v)]); }
  Channels channels_of(ValueId v) const {
    const Value& value = in_.graph.value(v);
    if (value.view_of < 0) return {0, std::numeric_limits<int64_t>::max()};
    return {value.view_channel, value.view_channel + value.desc.shape.c()};
  }

  const PlanInput& in_;
  const MemoryPlan& plan_;
  std::vector<ValueId> shows_;           // by value: the value whose data it has, which for a reshape is its input
  std::vector<std::vector<Held>> held_;  // by class
};

// Replays the schedule and verifies that every value that is read, or kept to the end, is in the memory of its class at
// that time.
void verify_contents(const PlanInput& in, const MemoryPlan& plan) {
  Contents contents(in, plan);
  for (NodeId n : in.schedule.order) {
    const Node& node = in.graph.node(n);
    for (ValueId v : node.inputs) contents.expect(v, node.name);
    for (ValueId v : node.outputs) contents.write(node, v);
  }
  for (ValueId v = 0; v < static_cast<ValueId>(plan.values.size()); ++v) {
    if (in.graph.value(v).kept) contents.expect(v, "the caller");
  }
}

}  // namespace

MemoryPeak find_peak(const PlanInput& in, const MemoryPlan& plan) {
  const std::vector<Block> blocks = lives_of(in, plan);
  std::vector<int64_t> change(in.schedule.order.size() + 1);
  const auto end = static_cast<int32_t>(in.schedule.order.size());
  for (const Block& b : blocks) {
    change[b.first] += b.bytes;
    change[std::min(b.last, end - 1) + 1] -= b.bytes;
  }
  MemoryPeak peak;
  int64_t now = 0;
  for (int32_t p = 0; p < end; ++p) {
    now += change[p];
    if (now > peak.bytes) std::tie(peak.position, peak.bytes) = std::pair(p, now);
  }
  for (const Block& b : blocks) {
    if (b.first > peak.position || b.last < peak.position) continue;
    const ValueId whole = b.value < 0 ? -1 : plan.alias_class[b.value];
    peak.parts.push_back({whole, b.bytes, b.first, b.last});
  }
  std::ranges::stable_sort(peak.parts, std::greater{}, &MemoryPeak::Part::bytes);
  return peak;
}

void verify_plan(const PlanInput& in, const MemoryPlan& plan) {
  verify_blocks(in, plan, lives_of(in, plan));
  verify_contents(in, plan);
}

}  // namespace lockstep
