# SPDX-License-Identifier: Apache-2.0
# The library, its public headers, a CMake package (find_package(vkformer) gives vkformer::vkformer) and a pkg-config file.
include(CMakePackageConfigHelpers)

install(TARGETS vkformer EXPORT vkformer
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(FILES "${PROJECT_BINARY_DIR}/include/vkformer/vkformer.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/vkformer")
foreach(header ${public_headers})
    get_filename_component(room "${header}" DIRECTORY)
    install(FILES "${header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/vkformer/${room}")
endforeach()

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/vkformer")
install(EXPORT vkformer NAMESPACE vkformer:: DESTINATION "${package_dir}" FILE vkformer-targets.cmake)
configure_package_config_file(cmake/vkformer-config.cmake.in "${PROJECT_BINARY_DIR}/vkformer-config.cmake"
    INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/vkformer-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/vkformer-config.cmake" "${PROJECT_BINARY_DIR}/vkformer-config-version.cmake"
    DESTINATION "${package_dir}")

if(VKFORMER_RUNTIME_GLSLANG AND NOT BUILD_SHARED_LIBS)
    return()  # glslang's own pkg-config files do not name all of what it needs
endif()
# Paths in the file start at the file itself, so that the installed tree may be moved.
file(RELATIVE_PATH pc_prefix "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
if(BUILD_SHARED_LIBS)
    set(pc_cflags "-DVKFORMER_SHARED")
    set(pc_libs "")
else()
    set(pc_cflags "")
    set(pc_libs "-pthread")
    if(CMAKE_DL_LIBS)
        string(APPEND pc_libs " -l${CMAKE_DL_LIBS}")
    endif()
endif()
configure_file(cmake/vkformer.pc.in vkformer.pc @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/vkformer.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
