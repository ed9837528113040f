# SPDX-License-Identifier: BSD-3-Clause
# nix build ./packaging
{
  description = "Lossless archives of transformer KV caches";
  inputs.nixpkgs.url = "nixpkgs";
  outputs = { self, nixpkgs }: {
    packages = nixpkgs.lib.genAttrs [ "x86_64-linux" "aarch64-linux" ] (system: {
      default = nixpkgs.legacyPackages.${system}.callPackage ./package.nix { };
    });
  };
}
