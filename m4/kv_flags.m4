# SPDX-License-Identifier: BSD-3-Clause
# Compiler flags, vector kernels and optional parts of kvarc.

# KV_TRY_FLAG(FLAG, VARIABLE): appends FLAG to VARIABLE if the compiler takes it.
AC_DEFUN([KV_TRY_FLAG], [
  AS_VAR_PUSHDEF([kv_cache], [kv_cv_cc_flag_$1])
  AC_CACHE_CHECK([whether $CC accepts $1], [kv_cache], [
    kv_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -Werror $1"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM()],
      [AS_VAR_SET([kv_cache], [yes])], [AS_VAR_SET([kv_cache], [no])])
    CFLAGS=$kv_save_CFLAGS])
  AS_VAR_IF([kv_cache], [yes], [AS_VAR_APPEND([$2], [" $1"])])
  AS_VAR_POPDEF([kv_cache])
])

# KV_C11: C11, no contraction of a*b+c. An exact format cannot do without the latter.
AC_DEFUN([KV_C11], [
  KV_CFLAGS=
  AS_CASE([$ac_prog_cc_stdc], [c11], [],
    [AC_MSG_ERROR([a C11 compiler is needed])])
  KV_TRY_FLAG([-ffp-contract=off], [KV_CFLAGS])
  AS_CASE([$KV_CFLAGS], [*-ffp-contract=off*], [],
    [AC_MSG_ERROR([the compiler must know -ffp-contract=off])])
  AS_CASE([" $CFLAGS "],
    [*" -ffast-math "*|*" -Ofast "*|*" -ffp-contract=fast "*],
    [AC_MSG_ERROR([CFLAGS must not have -ffast-math, -Ofast or -ffp-contract=fast])])
  KV_TRY_FLAG([-fvisibility=hidden], [KV_CFLAGS])
  KV_TRY_FLAG([-fno-strict-aliasing], [KV_CFLAGS])
  AC_SUBST([KV_CFLAGS])
])

# KV_WARNINGS: the warnings that the tree is clean under, gcc and clang;
# --enable-werror makes them errors (CI does).
AC_DEFUN([KV_WARNINGS], [
  AC_ARG_ENABLE([werror],
    [AS_HELP_STRING([--enable-werror], [turn warnings into errors])],
    [], [enable_werror=no])
  KV_WARN=
  m4_foreach_w([kv_flag], [-Wall -Wextra -Wconversion -Wno-sign-conversion
      -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
      -Wwrite-strings -Wvla -Wundef],
    [KV_TRY_FLAG(kv_flag, [KV_WARN])])
  # Vectors go between functions of one file alone.
  KV_TRY_FLAG([-Wno-psabi], [KV_WARN])
  AS_VAR_IF([enable_werror], [yes], [KV_WARN="$KV_WARN -Werror"])
  AC_SUBST([KV_WARN])
])

# KV_VERSION_SCRIPT: whether the linker takes a version script.
AC_DEFUN([KV_VERSION_SCRIPT], [
  AC_CACHE_CHECK([for linker version scripts], [kv_cv_version_script], [
    echo 'KV_1 { global: main; local: *; };' > conftest.map
    kv_save_LDFLAGS=$LDFLAGS
    LDFLAGS="$LDFLAGS -Wl,--version-script=conftest.map"
    AC_LINK_IFELSE([AC_LANG_PROGRAM()],
      [kv_cv_version_script=yes], [kv_cv_version_script=no])
    LDFLAGS=$kv_save_LDFLAGS
    rm -f conftest.map])
  AM_CONDITIONAL([VERSION_SCRIPT], [test "x$kv_cv_version_script" = xyes])
])

# KV_NEONDOT: kv_neondot is yes if sums of four products compile, with NEONDOT_CFLAGS or
# without, in the order of make: the user's flags are last.
AC_DEFUN([KV_NEONDOT], [
  m4_foreach([kv_flag], [[], [-march=armv8.2-a+dotprod]], [
    AS_VAR_IF([kv_neondot], [no], [
      AC_MSG_CHECKING([whether $CC kv_flag has sums of four products])
      kv_save_CFLAGS=$CFLAGS
      CFLAGS="-Werror kv_flag $CFLAGS"
      AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <arm_neon.h>]],
          [[int8x16_t a = vdupq_n_s8(1);
            return vgetq_lane_s32(vdotq_laneq_s32(vdupq_n_s32(0), a, a, 1), 0);]])],
        [kv_neondot=yes NEONDOT_CFLAGS="kv_flag"])
      CFLAGS=$kv_save_CFLAGS
      AC_MSG_RESULT([$kv_neondot])])])
])

# KV_SIMD: which vector kernels can be built. Flags go to their files alone.
AC_DEFUN([KV_SIMD], [
  AC_ARG_ENABLE([simd],
    [AS_HELP_STRING([--disable-simd], [build the scalar kernels only])],
    [], [enable_simd=yes])
  kv_avx2=no kv_avx512=no kv_neon=no kv_neondot=no
  AVX2_CFLAGS= AVX512_CFLAGS= NEONDOT_CFLAGS=
  AS_IF([test "x$enable_simd" = xyes], [
    AS_CASE([$host_cpu],
      [x86_64|i?86], [
        m4_foreach_w([kv_flag], [-mavx2 -mfma -mbmi -mbmi2 -mlzcnt -mpopcnt],
          [KV_TRY_FLAG(kv_flag, [AVX2_CFLAGS])])
        AS_CASE([$AVX2_CFLAGS], [*-mavx2*], [kv_avx2=yes])
        m4_foreach_w([kv_flag], [-mavx512f -mavx512bw -mavx512vl -mavx512dq
            -mavx512cd -mbmi -mbmi2 -mlzcnt -mpopcnt],
          [KV_TRY_FLAG(kv_flag, [AVX512_CFLAGS])])
        # The AVX-512 table borrows AVX2's moves.
        AS_CASE([$kv_avx2:$AVX512_CFLAGS],
          [yes:*-mavx512dq*-mavx512cd*], [kv_avx512=yes])],
      [aarch64_be*], [],
      [aarch64*|arm64*], [
        kv_neon=yes
        KV_NEONDOT
        AC_CHECK_FUNCS([getauxval])])])
  AC_SUBST([AVX2_CFLAGS])
  AC_SUBST([AVX512_CFLAGS])
  AC_SUBST([NEONDOT_CFLAGS])
  AM_CONDITIONAL([SIMD_AVX2], [test $kv_avx2 = yes])
  AM_CONDITIONAL([SIMD_AVX512], [test $kv_avx512 = yes])
  AM_CONDITIONAL([SIMD_NEON], [test $kv_neon = yes])
  AM_CONDITIONAL([SIMD_NEONDOT], [test $kv_neondot = yes])
  AS_IF([test $kv_avx2 = yes], [AC_DEFINE([KVI_AVX2], [1], [AVX2 kernels are built])])
  AS_IF([test $kv_avx512 = yes], [AC_DEFINE([KVI_AVX512], [1], [AVX-512 kernels are built])])
  AS_IF([test $kv_neon = yes], [AC_DEFINE([KVI_NEON], [1], [NEON kernels are built])])
  AS_IF([test $kv_neondot = yes],
    [AC_DEFINE([KVI_NEONDOT], [1], [NEON kernels of sums of four products are built])])
  kv_simd_summary="avx2 $kv_avx2, avx512 $kv_avx512, neon $kv_neon, neon with dot products $kv_neondot"
])

# KV_OPTIONAL(NAME, VAR, MODULE, DEBIAN-PACKAGE, PURPOSE, [CALL])
# --without-NAME leaves a library out, and --with-NAME insists on it. With CALL, one of its
# functions, --with-NAME=dlopen takes the headers alone, so that the program opens the host's library
# when it needs it, by the name that this host's linker records; that is the default where there is
# such a name. --with-NAME=link links it. VAR_LIBS is what the program links, VAR_LINK what tests
# link that call the library themselves. VAR_MISSING says what to do when it is not there.
AC_DEFUN([KV_OPTIONAL], [
  AC_ARG_WITH([$1],
    [AS_HELP_STRING([--without-$1], [do without $1 ($5)])m4_ifval([$6], [
AS_HELP_STRING([--with-$1=link], [link $1; default: open it at the first use (dlopen)])])],
    [], [with_$1=check])
  kv_with_$1=no
  AS_CASE([$with_$1], [no|check|yes|link], [],
    m4_ifval([$6], [[dlopen], [],])
    [AC_MSG_ERROR([--with-$1=$with_$1 is none of: no, link]m4_ifval([$6], [[, dlopen]]))])
  AS_IF([test "x$with_$1" != xno], [
    PKG_CHECK_MODULES([$2], [$3], [kv_with_$1=link], [
      AS_IF([test "x$with_$1" != xcheck],
        [AC_MSG_ERROR([$1 was asked for but not found (Debian: $4)])],
        [AC_MSG_WARN([$1 not found (Debian: $4): kvarc is built without $5])])])])
  $2_LINK=$$2_LIBS
  AC_SUBST([$2_LINK])
  kv_missing="which this kvarc was built without"
  m4_ifval([$6], [
    AS_IF([test "$kv_with_$1" = link && test "x$with_$1" != xlink], [
      KV_LIBRARY_FILE([$1], [$$2_LIBS], [$6])
      AS_IF([test -n "$kv_file"], [
        kv_with_$1=dlopen
        $2_LIBS=
        AC_DEFINE([$2_DLOPEN], [1], [$1 is opened at the first use])
        AC_DEFINE_UNQUOTED([$2_FILE], ["$kv_file"], [the file of $1])
        AS_CASE([$kv_file], [*[[0-9]].so.*], [kv_dash=-], [kv_dash=])
        kv_missing="which is not installed (Debian: `AS_ECHO([$kv_file]) | sed "s/\.so\./$kv_dash/"`)"], [
        AS_IF([test "x$with_$1" = xdlopen],
          [AC_MSG_ERROR([$1 has no name that it could be opened by; use --with-$1=link])])])])
    AC_DEFINE_UNQUOTED([$2_MISSING], ["lib[]m4_bpatsubst([$1], [^lib]), $kv_missing"],
      [the end of: this needs ...])])
  AS_VAR_IF([kv_with_$1], [no], [],
    [AC_DEFINE([HAVE_$2], [1], [$1 is there: $5])])
  AM_CONDITIONAL([HAVE_$2], [test "x$kv_with_$1" != xno])
])

# KV_LIBRARY_FILE(NAME, LIBS, CALL): sets kv_file to the name that a program needs a shared library
# by, as the linker records it; empty where programs do not say so.
AC_DEFUN([KV_LIBRARY_FILE], [
  AC_MSG_CHECKING([for the file of $1])
  kv_file=
  kv_save_LIBS=$LIBS
  LIBS="$2 $LIBS $DL_LIBS"
  AC_LINK_IFELSE([AC_LANG_SOURCE([[
char $3(void);
int main(void)
{
	return $3();
}]])], [
    kv_base=`AS_ECHO([$1]) | sed 's/^lib//'`
    kv_file=`${OBJDUMP-objdump} -p conftest$ac_exeext 2> /dev/null |
      sed -n "s/^ *NEEDED  *\(lib$kv_base@<:@-.@:>@.*\)/\1/p" | sed 1q`])
  LIBS=$kv_save_LIBS
  AC_MSG_RESULT([${kv_file:-none}])
])

# KV_XXH_DISPATCH: whether libxxhash chooses its vector code at run time.
AC_DEFUN([KV_XXH_DISPATCH], [
  AC_CACHE_CHECK([whether libxxhash dispatches at run time],
    [kv_cv_xxh_dispatch], [
    kv_save_LIBS=$LIBS kv_save_CPPFLAGS=$CPPFLAGS
    LIBS="$XXHASH_LIBS $LIBS" CPPFLAGS="$CPPFLAGS $XXHASH_CFLAGS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>
#include <xxh_x86dispatch.h>]],
      [[XXH3_state_t st;
        XXH3_128bits_reset(&st);
        XXH3_128bits_update_dispatch(&st, "", 0);
        return (int)XXH3_128bits_dispatch("", 0).low64;]])],
      [kv_cv_xxh_dispatch=yes], [kv_cv_xxh_dispatch=no])
    LIBS=$kv_save_LIBS CPPFLAGS=$kv_save_CPPFLAGS])
  AS_IF([test "$kv_cv_xxh_dispatch" = yes && test "x$enable_simd" = xyes],
    [AC_DEFINE([KVI_XXH_DISPATCH], [1],
      [libxxhash has run-time dispatch of its vector code])])
])
