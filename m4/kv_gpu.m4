# SPDX-License-Identifier: BSD-3-Clause
# What gpu/ needs: a C++ compiler for its tests on the host, CUDA for its kernels.

# KV_GPU_TESTS: whether `make check` runs the kernels of gpu/ on the host.
AC_DEFUN([KV_GPU_TESTS], [
  AC_ARG_WITH([gpu-tests],
    [AS_HELP_STRING([--without-gpu-tests],
      [do not run the kernels of gpu/ on the host in `make check'; they need a C++17 compiler])],
    [], [with_gpu_tests=auto])
  KV_CXXFLAGS="-std=c++17 -fno-exceptions -fno-rtti -fno-strict-aliasing -ffp-contract=off"
  KV_CXXWARN="-Wall -Wextra -Wshadow -Wno-psabi -Wno-unused-function"
  AS_VAR_IF([enable_werror], [yes], [KV_CXXWARN="$KV_CXXWARN -Werror"])
  kv_gpu_tests=no
  kv_gpu_races=no
  AS_VAR_IF([with_gpu_tests], [no], [], [
    AC_LANG_PUSH([C++])
    kv_save_CXXFLAGS=$CXXFLAGS
    CXXFLAGS="$CXXFLAGS $KV_CXXFLAGS"
    AC_CACHE_CHECK([whether $CXX compiles C++17 with vectors of 32 numbers], [kv_cv_cxx_vectors], [
      AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
          typedef unsigned u32v __attribute__((vector_size(128)));
          typedef int boolv __attribute__((vector_size(128)));
          template <int N> struct thing { static constexpr int n = N; };]], [[
          u32v v = u32v{} + 3u;
          boolv b = (boolv)(v < 5u);
          return b[thing<2>::n] + 1;]])],
        [kv_cv_cxx_vectors=yes], [kv_cv_cxx_vectors=no])])
    CXXFLAGS="$CXXFLAGS -fsanitize=thread"
    AC_CACHE_CHECK([whether $CXX takes -fsanitize=thread], [kv_cv_cxx_races],
      [AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])], [kv_cv_cxx_races=yes], [kv_cv_cxx_races=no])])
    # the runtime of a sanitizer would meet that of tests/gpu/races.sh
    AS_CASE(["$CFLAGS $kv_save_CXXFLAGS"], [*-fsanitize=*], [], [kv_gpu_races=$kv_cv_cxx_races])
    CXXFLAGS=$kv_save_CXXFLAGS
    AC_LANG_POP([C++])
    kv_gpu_tests=$kv_cv_cxx_vectors
    AS_IF([test "x$with_gpu_tests$kv_gpu_tests" = xyesno],
      [AC_MSG_ERROR([--with-gpu-tests needs a C++17 compiler, g++ or clang++ (Debian: g++)])])])
  AC_SUBST([KV_CXXFLAGS])
  AC_SUBST([KV_CXXWARN])
  AM_CONDITIONAL([GPU_TESTS], [test "x$kv_gpu_tests" = xyes])
  AM_CONDITIONAL([GPU_RACES], [test "x$kv_gpu_tests$kv_gpu_races" = xyesyes])
])

# KV_CUDA: where nvcc and cuobjdump are.
AC_DEFUN([KV_CUDA], [
  AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@],
      [CUDA 13 for `make gpu-kernels' and `make check-gpu' (default: looked for in PATH and
       /usr/local/cuda)])],
    [], [with_cuda=auto])
  AC_ARG_VAR([CUOBJDUMP], [cuobjdump of CUDA, for `make check-gpu'])
  NVCC=
  AS_CASE([$with_cuda],
    [no], [],
    [yes | auto], [kv_cuda_path=$PATH$PATH_SEPARATOR/usr/local/cuda/bin],
    [kv_cuda_path=$with_cuda/bin])
  AS_VAR_IF([with_cuda], [no], [], [
    AC_PATH_PROG([NVCC], [nvcc], [], [$kv_cuda_path])
    AC_PATH_PROG([CUOBJDUMP], [cuobjdump], [], [$kv_cuda_path$PATH_SEPARATOR$PATH])
    AS_CASE([$with_cuda/$NVCC], [auto/* | */*nvcc], [],
      [AC_MSG_ERROR([--with-cuda: there is no nvcc in $kv_cuda_path])])])
  AC_SUBST([NVCC])
  kv_cuda_version=unknown
  AS_IF([test -n "$NVCC"],
    [kv_cuda_version=`"$NVCC" --version | sed -n 's/.*release \(@<:@0-9.@:>@*\),.*/\1/p'`])
  AC_DEFINE_UNQUOTED([KVARC_CUDA_VERSION], ["$kv_cuda_version"],
    [Version of the CUDA toolkit that compiles the kernels, or "unknown".])
])
