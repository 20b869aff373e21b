#include <algorithm>

#include "io/hdf5_internal.h"

namespace lockstep {

using hdf5::check;
using hdf5::check_id;
using hdf5::Context;
using hdf5::Lock;

namespace {

// Returns the attribute, or an empty handle if the object has none of that name. Called with the lock held.
Hdf5Id find_attribute(hid_t object, const std::string& name, const Context& context) {
  if (check(H5Aexists(object, name.c_str()), context, "look up attribute " + name) == 0) return {};
  return check_id(H5Aopen(object, name.c_str(), H5P_DEFAULT), context, "open attribute " + name);
}

// Creates a scalar attribute of `type` and fills it. Called with the lock held.
void create_attribute(hid_t object, const std::string& name, hid_t type, const void* value, const Context& context) {
  const Hdf5Id space = check_id(H5Screate(H5S_SCALAR), context, "make a data space");
  const Hdf5Id attribute = check_id(H5Acreate2(object, name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT),
                                    context, "create attribute " + name);
  check(H5Awrite(attribute.get(), type, value), context, "write attribute " + name);
}

}  // namespace

std::optional<int64_t> Hdf5File::integer_attribute(const std::string& object, const std::string& name) const {
  const Context context{name_, blame_};
  const Lock lock;
  const Hdf5Id id = open_object(object);
  const Hdf5Id attribute = find_attribute(id.get(), name, context);
  if (!attribute) return std::nullopt;
  const Hdf5Id type = check_id(H5Aget_type(attribute.get()), context, "get the type of attribute " + name);
  const Hdf5Id space = check_id(H5Aget_space(attribute.get()), context, "get the space of attribute " + name);
  // An attribute with more values would overrun the variable into which it is read.
  if (!hdf5::is_number(type.get()) || H5Sget_simple_extent_npoints(space.get()) != 1) {
    fail(blame_, "{}: attribute {} is not one number", name_, name);
  }
  int64_t value = 0;
  check(H5Aread(attribute.get(), H5T_NATIVE_INT64, &value), context, "read attribute " + name);
  return value;
}

std::optional<std::string> Hdf5File::string_attribute(const std::string& object, const std::string& name) const {
  const Context context{name_, blame_};
  const Lock lock;
  const Hdf5Id id = open_object(object);
  const Hdf5Id attribute = find_attribute(id.get(), name, context);
  if (!attribute) return std::nullopt;
  const Hdf5Id type = check_id(H5Aget_type(attribute.get()), context, "get the type of attribute " + name);
  const Hdf5Id space = check_id(H5Aget_space(attribute.get()), context, "get the space of attribute " + name);
  if (H5Tget_class(type.get()) != H5T_STRING || H5Sget_simple_extent_npoints(space.get()) != 1) {
    fail(blame_, "{}: attribute {} is not one string", name_, name);
  }
  return hdf5::read_strings({type.get(), space.get(), 1, most_bytes()}, context,
                            [&](hid_t memory, hid_t, void* to) { return H5Aread(attribute.get(), memory, to); })[0];
}

void Hdf5File::write_attribute(const std::string& object, const std::string& name, int64_t value) {
  const Lock lock;
  create_attribute(open_object(object).get(), name, H5T_NATIVE_INT64, &value, {name_, blame_});
}

void Hdf5File::write_attribute(const std::string& object, const std::string& name, const std::string& value) {
  const Context context{name_, blame_};
  const Lock lock;
  const Hdf5Id id = open_object(object);
  const Hdf5Id type = check_id(H5Tcopy(H5T_C_S1), context, "make a string type");
  check(H5Tset_size(type.get(), H5T_VARIABLE), context,
        "set the string length");  // so that h5py returns str, not bytes
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8), context, "set the character set");
  const char* text = value.c_str();
  create_attribute(id.get(), name, type.get(), &text, context);
}

}  // namespace lockstep
