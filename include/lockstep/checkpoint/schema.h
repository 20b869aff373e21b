// Does a file fit the model? Every array of the file and every parameter of the table is accounted for, or it is an
// error that names them; nothing is skipped silently.
#pragma once

#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/tensor/parameter_table.h"

namespace lockstep {

struct SchemaOptions {
  std::string group = "/model";      // "/ema", "/optimizer/momentum", ...; "/" for a file of bare weights
  bool trained_only = false;         // optimizer slots: running statistics have none
  std::vector<std::string> exclude;  // parameters, or layers ("fc" stands for fc.weight and fc.bias), to leave out
};

// The parameters to read from `group`, in table order. Throws Error(config) naming every parameter that is missing,
// extra or of another shape (with both shapes), a group that is not in the file, and an exclusion that names nothing.
std::vector<ParameterId> match_schema(const ParameterTable& table, const CheckpointReader& file,
                                      const SchemaOptions& options);

// "/model" + "fc.weight" -> "/model/fc.weight"; the group may be "/".
std::string array_path(const std::string& group, const std::string& name);

}  // namespace lockstep
