# SPDX-License-Identifier: BSD-3-Clause
# A package for nixpkgs' callPackage. Its libraries lie in the store, where dlopen does not look for
# them: they are linked.
{ lib, stdenv, autoreconfHook, pkg-config, xxHash, zstd, libarchive, jansson, sqlite, curl, hiredis
, libsodium, isa-l, cmocka, python3 }:

stdenv.mkDerivation {
  pname = "kvarc";
  version = "0.1.0";
  src = lib.cleanSource ../.;
  nativeBuildInputs = [ autoreconfHook pkg-config ];
  buildInputs = [ xxHash zstd libarchive jansson sqlite curl hiredis libsodium isa-l ];
  nativeCheckInputs = [ cmocka python3 ];
  configureFlags = map (name: "--with-${name}=link")
    [ "libarchive" "jansson" "sqlite3" "libcurl" "hiredis" "isal" ];
  outputs = [ "out" "dev" "doc" "man" ];
  enableParallelBuilding = true;
  doInstallCheck = true;
  installCheckPhase = ''
    $out/bin/kvarc pack -q -o check.kva tests/data/sample/smollm2-135m-f16-160.slot
    $out/bin/kvarc test -q check.kva
  '';
  meta = {
    description = "Lossless archives of transformer KV caches";
    license = lib.licenses.bsd3;
    mainProgram = "kvarc";
    platforms = lib.platforms.linux;
  };
}
