#include <algorithm>

#include "io/hdf5_internal.h"

namespace lockstep {

using hdf5::check;
using hdf5::check_id;
using hdf5::Context;
using hdf5::Lock;

namespace {

// The attribute, or an empty handle when the object has none of that name. Call with the lock held.
Hdf5Id find_attribute(hid_t object, const std::string& name, const Context& context) {
  if (check(H5Aexists(object, name.c_str()), context, "look up attribute " + name) == 0) return {};
  return check_id(H5Aopen(object, name.c_str(), H5P_DEFAULT), context, "open attribute " + name);
}

// A single number. Larger attributes would overrun the one element they are read into.
template <class T>
std::optional<T> read_number(hid_t object, const std::string& name, const Context& context) {
  const Hdf5Id attribute = find_attribute(object, name, context);
  if (!attribute) return std::nullopt;
  const Hdf5Id type = check_id(H5Aget_type(attribute.get()), context, "get the type of attribute " + name);
  const Hdf5Id space = check_id(H5Aget_space(attribute.get()), context, "get the space of attribute " + name);
  const H5T_class_t stored = H5Tget_class(type.get());
  if ((stored != H5T_INTEGER && stored != H5T_FLOAT) || H5Sget_simple_extent_npoints(space.get()) != 1) {
    fail(context.blame, "{}: attribute {} is not one number", context.where, name);
  }
  T value{};
  check(H5Aread(attribute.get(), hdf5::memory_type<T>(), &value), context, "read attribute " + name);
  return value;
}

// Creates a scalar attribute of `type` and fills it. Call with the lock held.
void create_attribute(hid_t object, const std::string& name, hid_t type, const void* value, const Context& context) {
  const Hdf5Id space = check_id(H5Screate(H5S_SCALAR), context, "make a data space");
  const Hdf5Id attribute = check_id(H5Acreate2(object, name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT),
                                    context, "create attribute " + name);
  check(H5Awrite(attribute.get(), type, value), context, "write attribute " + name);
}

}  // namespace

std::vector<std::string> Hdf5File::list_attributes(const std::string& object) const {
  const Lock lock;
  const Hdf5Id id = open_object(object);
  std::vector<std::string> names;
  const auto add = [](hid_t, const char* name, const H5A_info_t*, void* to) -> herr_t {
    static_cast<std::vector<std::string>*>(to)->emplace_back(name);
    return 0;
  };
  check(H5Aiterate2(id.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, add, &names), {name_, blame_},
        "list the attributes of " + object);
  return names;
}

std::optional<int64_t> Hdf5File::integer_attribute(const std::string& object, const std::string& name) const {
  const Lock lock;
  return read_number<int64_t>(open_object(object).get(), name, {name_, blame_});
}

std::optional<double> Hdf5File::float_attribute(const std::string& object, const std::string& name) const {
  const Lock lock;
  return read_number<double>(open_object(object).get(), name, {name_, blame_});
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
  return hdf5::read_strings({type.get(), space.get(), 1}, context,
                            [&](hid_t memory, void* to) { return H5Aread(attribute.get(), memory, to); })[0];
}

void Hdf5File::write_attribute(const std::string& object, const std::string& name, int64_t value) {
  const Lock lock;
  create_attribute(open_object(object).get(), name, H5T_NATIVE_INT64, &value, {name_, blame_});
}

void Hdf5File::write_attribute(const std::string& object, const std::string& name, double value) {
  const Lock lock;
  create_attribute(open_object(object).get(), name, H5T_NATIVE_DOUBLE, &value, {name_, blame_});
}

void Hdf5File::write_attribute(const std::string& object, const std::string& name, const std::string& value) {
  const Context context{name_, blame_};
  const Lock lock;
  const Hdf5Id id = open_object(object);
  const Hdf5Id type = check_id(H5Tcopy(H5T_C_S1), context, "make a string type");
  check(H5Tset_size(type.get(), H5T_VARIABLE), context, "set the string length");  // h5py gives str, not bytes
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8), context, "set the character set");
  const char* text = value.c_str();
  create_attribute(id.get(), name, type.get(), &text, context);
}

}  // namespace lockstep
