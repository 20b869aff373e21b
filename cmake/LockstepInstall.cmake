# cmake --install: the program, the recipes, and the data that recipes use.

include(GNUInstallDirs)
set(share ${CMAKE_INSTALL_DATADIR}/${PROJECT_NAME})

install(TARGETS trainer)
if(LOCKSTEP_HAVE_CUDA)
  install(TARGETS lockstep_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/${PROJECT_NAME})
endif()
install(DIRECTORY models/recipes/ DESTINATION ${share}/recipes FILES_MATCHING PATTERN "*.toml"
        PATTERN "digits.toml" EXCLUDE)
install(DIRECTORY data/digits DESTINATION ${share}/data)

# The installed recipe lies one folder nearer to its data.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS models/recipes/digits.toml)
file(READ models/recipes/digits.toml recipe)
string(REPLACE "\"../../data/" "\"../data/" recipe "${recipe}")
file(CONFIGURE OUTPUT install/digits.toml CONTENT "${recipe}" @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/install/digits.toml DESTINATION ${share}/recipes)
