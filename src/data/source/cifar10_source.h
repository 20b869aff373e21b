// The binary versions of CIFAR-10 and CIFAR-100: records of one or two label bytes and 3 x 32 x 32 pixel bytes.
#pragma once

#include <memory>

#include "lockstep/data/source/data_source.h"

namespace lockstep {

// A file whose length is no multiple of a record is an error; under BadRecords::skip its tail is left out with a
// warning.
std::unique_ptr<DataSource> open_cifar10(const DataSourceOptions& options);

// The label is the class ("fine"), not the superclass.
std::unique_ptr<DataSource> open_cifar100(const DataSourceOptions& options);

}  // namespace lockstep
