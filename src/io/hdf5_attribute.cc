#include "io/hdf5_internal.h"

namespace lockstep {

using hdf5::check;
using hdf5::check_id;
using hdf5::Context;
using hdf5::Lock;

namespace {

struct Attribute {
  Hdf5Id id, type, space;
  bool single() const { return H5Sget_simple_extent_npoints(space.get()) == 1; }
};

// Returns nothing if the object has no attribute of that name. Called with the lock held.
std::optional<Attribute> find_attribute(hid_t object, const std::string& name, const Context& context) {
  if (check(H5Aexists(object, name.c_str()), context, "look up attribute " + name) == 0) return std::nullopt;
  Attribute found{.id = check_id(H5Aopen(object, name.c_str(), H5P_DEFAULT), context, "open attribute " + name)};
  found.type = check_id(H5Aget_type(found.id.get()), context, "get the type of attribute " + name);
  found.space = check_id(H5Aget_space(found.id.get()), context, "get the space of attribute " + name);
  return found;
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
  const std::optional<Attribute> attribute = find_attribute(open_object(object).get(), name, context);
  if (!attribute) return std::nullopt;
  // An attribute with more values would overrun the variable into which it is read.
  if (!hdf5::is_number(attribute->type.get()) || !attribute->single()) {
    fail(blame_, "{}: attribute {} is not one number", name_, name);
  }
  int64_t value = 0;
  check(H5Aread(attribute->id.get(), H5T_NATIVE_INT64, &value), context, "read attribute " + name);
  return value;
}

std::optional<std::string> Hdf5File::string_attribute(const std::string& object, const std::string& name) const {
  const Context context{name_, blame_};
  const Lock lock;
  const std::optional<Attribute> attribute = find_attribute(open_object(object).get(), name, context);
  if (!attribute) return std::nullopt;
  if (H5Tget_class(attribute->type.get()) != H5T_STRING || !attribute->single()) {
    fail(blame_, "{}: attribute {} is not one string", name_, name);
  }
  return hdf5::read_strings({attribute->type.get(), attribute->space.get(), 1, most_bytes()}, context,
                            [&](hid_t memory, hid_t, void* to) { return H5Aread(attribute->id.get(), memory, to); })[0];
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
