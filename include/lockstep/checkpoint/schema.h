// Matches the arrays of a file with the parameters of a model. Nothing is skipped silently.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/tensor/parameter_table.h"

namespace lockstep {

struct SchemaOptions {
  std::string group = "/model";      // "/ema", "/optimizer/momentum", ...; "/" or "" if the file is not a checkpoint
  bool trained_only = false;         // for optimizer slots, which running statistics do not have
  std::vector<std::string> exclude;  // parameters, or layers ("fc" means fc.weight and fc.bias), that are not read
};

// Returns the parameters to read from `group`, in table order. Throws Error(config), which names every parameter that
// is missing, extra or of another shape, an exclusion that matches no parameter, or a group that is not in the file.
std::vector<ParameterId> match_schema(const ParameterTable& table, const CheckpointReader& file,
                                      const SchemaOptions& options);

// The same for any file, of whose arrays `stored` has the shapes by path; in a group "" paths are names. `file` is its
// name for messages.
std::vector<ParameterId> match_schema(const ParameterTable& table, std::map<std::string, Shape> stored,
                                      const std::string& file, const SchemaOptions& options);

// Returns "/model/fc.weight" for "/model" and "fc.weight". The group may be "/", or "" for the name itself.
std::string array_path(const std::string& group, const std::string& name);

}  // namespace lockstep
