# SPDX-License-Identifier: Apache-2.0
# The tests of the Python package on each device, with NumPy and pytest.
get_property(VKFORMER_PYTHON GLOBAL PROPERTY VKFORMER_PYTHON)
get_property(VKFORMER_PYTHON_PACKAGE GLOBAL PROPERTY VKFORMER_PYTHON_PACKAGE)
get_property(VKFORMER_PYTHON_ENVIRONMENT GLOBAL PROPERTY VKFORMER_PYTHON_ENVIRONMENT)
execute_process(COMMAND "${VKFORMER_PYTHON}" -c "import numpy, pytest" RESULT_VARIABLE lacks OUTPUT_QUIET ERROR_QUIET)
if(lacks)
    message(STATUS "vkformer: no tests of the Python package, for NumPy or pytest is not here (pip install numpy pytest; "
        "Debian and Ubuntu: python3-numpy, python3-pytest)")
else()
    foreach(name manifest IN ZIP_LISTS driver_names drivers)
        add_test(NAME python-${name} COMMAND "${VKFORMER_PYTHON}" -m pytest -q -p no:cacheprovider
            "${PROJECT_SOURCE_DIR}/python/tests")
        vkformer_set_environment(python-${name} "${manifest}")
        vkformer_on_one_thread(python-${name})
        set_property(TEST python-${name} APPEND PROPERTY ENVIRONMENT "PYTHONPATH=${VKFORMER_PYTHON_PACKAGE}"
            "VKFORMER_SOURCE=${PROJECT_SOURCE_DIR}" PYTHONDONTWRITEBYTECODE=1 ${VKFORMER_PYTHON_ENVIRONMENT})
        if(name STREQUAL swiftshader)  # which compiles each kernel anew in each process
            set_property(TEST python-${name} APPEND PROPERTY ENVIRONMENT VKFORMER_EXAMPLES=2
                VKFORMER_MANY=2000)
        endif()
    endforeach()
    vkformer_in_part(half-0 python-lavapipe)
    vkformer_in_part(half-1 python-swiftshader)
endif()
