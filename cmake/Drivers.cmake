# SPDX-License-Identifier: Apache-2.0
# The software devices that tests run on: which are here, and how a test is pointed at one.
file(GLOB lavapipe_icds /usr/local/share/vulkan/icd.d/lvp_icd*.json /usr/share/vulkan/icd.d/lvp_icd*.json
    /etc/vulkan/icd.d/lvp_icd*.json)
set(lavapipe_icd "")
foreach(icd ${lavapipe_icds})  # one file an architecture; newer Mesa has one for all
    if(NOT lavapipe_icd AND icd MATCHES "lvp_icd(\\.${CMAKE_SYSTEM_PROCESSOR})?\\.json$")
        set(lavapipe_icd "${icd}")
    endif()
endforeach()
get_filename_component(build_root "${PROJECT_BINARY_DIR}/.." ABSOLUTE)

set(VKFORMER_LAVAPIPE "${lavapipe_icd}" CACHE FILEPATH "lavapipe's Vulkan manifest (lvp_icd.*.json)")
set(VKFORMER_SWIFTSHADER "${build_root}/swiftshader/vk_swiftshader_icd.json" CACHE FILEPATH "SwiftShader's Vulkan manifest")

# Paths of the manifests that exist. A missing one is said aloud: its tests are not there.
set(drivers "")
set(driver_names "")
foreach(name lavapipe swiftshader)
    string(TOUPPER "VKFORMER_${name}" variable)
    if(CMAKE_CROSSCOMPILING)
        continue()
    elseif(NOT "${${variable}}" STREQUAL "" AND EXISTS "${${variable}}")
        list(APPEND driver_names ${name})
        list(APPEND drivers "${${variable}}")
    else()
        message(WARNING "No tests on ${name}: its manifest ('${${variable}}') is not there. "
            "tools/test gets it; ${variable} names one.")
    endif()
endforeach()

set(VKFORMER_TEST_CACHE "${PROJECT_BINARY_DIR}/cache" CACHE PATH
    "Where drivers keep what they compile for tests; several build folders may share one")

option(VKFORMER_TEST_VALIDATION "Run the tests under the validation layer" ON)
if(VKFORMER_TEST_VALIDATION)
    set(test_validation 1)
else()
    set(test_validation 0)
endif()

# vkformer_set_environment(test manifests...): the test sees these drivers only.
function(vkformer_set_environment test)
    list(JOIN ARGN ":" manifests)
    set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT
        "VK_ICD_FILENAMES=${manifests}" "VK_DRIVER_FILES=${manifests}"
        "XDG_CACHE_HOME=${VKFORMER_TEST_CACHE}" "VKFORMER_VALIDATION=${test_validation}" VKFORMER_TUNING=0
        VK_LAYER_SYNCVAL_SHADER_ACCESSES_HEURISTIC=1)
    set_property(TEST ${test} PROPERTY TIMEOUT 3600)
    # a selection of nothing proves nothing
    set_property(TEST ${test} PROPERTY FAIL_REGULAR_EXPRESSION "test cases: +0 " "assertions: +0 ")
    # lavapipe's own threads are not looked at there, and take a tenth of the time.
    if(VKFORMER_SANITIZE MATCHES address)
        set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT LP_NUM_THREADS=0)
    endif()
    if(VKFORMER_SANITIZE)  # the drivers' own leaks and races are not ours
        set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT
            "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/.ci/lsan.supp:print_suppressions=0"
            "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/.ci/tsan.supp")
    endif()
endfunction()

# vkformer_on_one_thread(test...): the software devices have one thread for work groups there. Of
# models and programs it is the host's part that is looked at, in many small submissions: with
# threads of their own, which wait for each other, drivers take twice as long.
file(WRITE "${PROJECT_BINARY_DIR}/one_thread/SwiftShader.ini" "[Processor]\nThreadCount=1\n")
function(vkformer_on_one_thread)
    foreach(test ${ARGN})
        # SwiftShader reads the file where it is started
        set_property(TEST ${test} PROPERTY WORKING_DIRECTORY "${PROJECT_BINARY_DIR}/one_thread")
        set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT LP_NUM_THREADS=0)
    endforeach()
endfunction()

# vkformer_run_after(test driver other): lavapipe keeps what it has compiled for all processes, in
# the folder of XDG_CACHE_HOME. Two tests of the same kernels one after the other compile them once,
# and side by side twice. SwiftShader keeps nothing.
function(vkformer_run_after test driver other)
    if(driver STREQUAL lavapipe)
        set_property(TEST ${test} APPEND PROPERTY DEPENDS ${other})
    endif()
endfunction()

# vkformer_in_part(part test...): these, where they are there, are in one half of the tests (half-0,
# half-1), in one third (third-0 to third-2) or in one sixth (sixth-0 to sixth-5). `.ci/run` takes
# one of each for a change and leaves the others out, `tools/test` runs all. A test in a half and a
# third needs both.
function(vkformer_in_part part)
    foreach(test ${ARGN})
        if(TEST ${test})
            set_property(TEST ${test} APPEND PROPERTY LABELS ${part})
        endif()
    endforeach()
endfunction()

# vkformer_add_device_tests(prefix program args...): <prefix><driver> and <prefix><driver>-minimum
# for each driver. Each half of the tests has the program on one driver as it is, and on the other
# with what a device has at least; golden cases are on all four in both.
function(vkformer_add_device_tests prefix)
    set(again "")
    set(half 0)
    if("${prefix}" STREQUAL "attention-")  # with its forced kernels: lavapipe's cache serves both
        set(half 1)
    endif()
    list(LENGTH driver_names number)
    foreach(name manifest IN ZIP_LISTS driver_names drivers)
        foreach(profile "" "-minimum")
            set(test "${prefix}${name}${profile}")
            add_test(NAME ${test} COMMAND ${ARGN} ${again})
            vkformer_set_environment(${test} "${manifest}")
            if("${prefix}" MATCHES "^(models|golden-ranks|generate|embed_text|dates|train)-$")
                vkformer_on_one_thread(${test})
            endif()
            # a validated run means something only where the layer was shown to see: vkformer_tests
            # plants hazards first and so does golden; the sample cannot and runs after golden,
            # which takes less time and is in every turn
            if("${prefix}" STREQUAL "")
                # Once is enough for what plans for devices that are not there, for the doctor's own
                # cases, and for calls that we make fail, whose lives compile many kernels.
                set(again "--test-case-exclude=doctor: *,self-test: every case*,self-test: whatever*,self-test: a kernel for which*,self-test: memory*,self-test: a check*,tiling: *,faults: every function*,faults: memory that*,soak: *,bounds: *any*,bounds: gradients*,bounds: appending*")
            elseif("${prefix}" STREQUAL "golden-")
                set_property(TEST ${test} PROPERTY FIXTURES_SETUP "sees-${name}${profile}")
            elseif("${prefix}" MATCHES "^(generate|embed_text|dates|attentions|minimal_host|tune|doctor|embed|learn|pair|async|c_[a-z_]*)-$")
                set_property(TEST ${test} PROPERTY FIXTURES_REQUIRED "sees-${name}${profile}")
            endif()
            if(profile)
                set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT VKFORMER_PROFILE=minimum)
                vkformer_run_after(${test} ${name} "${prefix}${name}")
            endif()
            # an only driver has all tests in both
            if(NOT "${prefix}" MATCHES "^golden-" AND number GREATER 1)
                vkformer_in_part(half-${half} ${test})
            endif()
            math(EXPR half "1 - ${half}")
        endforeach()
        math(EXPR half "1 - ${half}")
    endforeach()
endfunction()

# vkformer_validate_from_outside(prefix): the device tests of a program that knows nothing of
# validation. The layer is put under it
# and says what it finds on the standard output.
function(vkformer_validate_from_outside prefix)
    if(NOT VKFORMER_TEST_VALIDATION)
        return()
    endif()
    # Layers before 1.4 know the older name alone, and later ones warn of it.
    set(synchronization VK_LAYER_VALIDATE_SYNC=1)
    file(GLOB manifests /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json
        /usr/local/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json)
    foreach(manifest ${manifests})
        file(STRINGS "${manifest}" version REGEX "\"api_version\": *\"1\\.[0-3]\\.")
        if(version)
            set(synchronization VK_LAYER_ENABLES=VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT)
        endif()
    endforeach()
    foreach(name ${driver_names})
        foreach(profile "" "-minimum")
            set(test "${prefix}${name}${profile}")
            set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation
                ${synchronization})
            set_property(TEST ${test} APPEND PROPERTY FAIL_REGULAR_EXPRESSION "SYNC-HAZARD" "VUID-" "Validation Error")
        endforeach()
    endforeach()
endfunction()
