# SPDX-License-Identifier: BSD-3-Clause
# Homebrew. The tarball lies beside it (packaging/build tarball):
# brew install --formula ./kvarc.rb
class Kvarc < Formula
  desc "Lossless archives of transformer KV caches"
  url "file://#{__dir__}/kvarc-0.1.0.tar.xz"
  license "BSD-3-Clause"

  depends_on "pkgconf" => :build
  depends_on "curl"
  depends_on "hiredis"
  depends_on "jansson"
  depends_on "libarchive"
  depends_on "libsodium"
  depends_on "sqlite"
  depends_on "xxhash"
  depends_on "zstd"

  def install
    libraries = %w[libarchive jansson sqlite3 libcurl hiredis]
    system "./configure", "--without-isal", "--without-cmocka",
           *libraries.map { |name| "--with-#{name}=link" }, *std_configure_args
    system "make", "install"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/kvarc --version")
    (testpath/"cache").write("not a cache")
    system bin/"kvarc", "keygen", "key"
    assert_path_exists testpath/"key"
  end
end
