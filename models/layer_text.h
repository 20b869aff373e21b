// One entry of a list of layers in a model file, and the values of its keys. Errors name the file, line and layer.
#pragma once

#include <fmt/format.h>
#include <toml++/toml.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/printable.h"
#include "lockstep/ops/operations.h"

namespace lockstep {

inline int line_of(const toml::node& node) { return static_cast<int>(node.source().begin.line); }

// The scope of an entry: the network, or a use of a block.
struct LayerScope {
  std::string prefix;                      // of the names in it
  std::string input;                       // the output that its first layer reads
  const toml::table* arguments = nullptr;  // of the block
  bool only_training = false;              // the block is
};

struct LayerText {
  const toml::table& table;
  const LayerScope& scope;
  const toml::table& globals;  // the values of "$name" in all scopes
  const std::string& path;
  std::string name;  // with the prefix of the scope

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ExitCode::config, "{}:{}: layer {}: {}", path, line_of(table), printable(name),
         fmt::format(format, std::forward<Args>(args)...));
  }
  void check_keys(const std::vector<std::string>& known) const;

  // Returns the value of a key, or nullptr. "$name" is the argument of that name of the block, or a global.
  const toml::node* find(std::string_view key) const;
  // A value that is not given is an error if there is no `otherwise`.
  int64_t integer(std::string_view key, int64_t low, int64_t high) const;
  double number(std::string_view key, double otherwise) const;
  bool flag(std::string_view key, bool otherwise = false) const;
  bool only_training() const;  // not in evaluation, as its "only" or that of its block says
  Window window(std::optional<int64_t> kernel) const;
  // Returns the deviation of the initial weights: a number, or a rule of He et al. 2015, "Delving Deep into
  // Rectifiers"; by default fan_in.
  double deviation(int64_t fan_in, int64_t fan_out) const;

 private:
  int64_t to_integer(std::string_view key, const toml::node& node, int64_t low, int64_t high) const;
  // Returns a number for both directions, or [height, width].
  std::pair<int64_t, int64_t> extent(std::string_view key, int64_t low, std::optional<int64_t> otherwise) const;
};

}  // namespace lockstep
