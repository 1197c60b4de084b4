# Read within llama-cpp-python's project(); this variable takes precedence over the cache entry that it forces.
set(LLAMA_BUILD_COMMON OFF)
