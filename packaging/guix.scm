;; SPDX-License-Identifier: BSD-3-Clause
;; guix build -f packaging/guix.scm
;; Libraries lie in the store, where dlopen does not look for them: they are linked.
(use-modules (guix packages) (guix gexp) (guix git-download) (guix build-system gnu)
             ((guix licenses) #:prefix license:)
             (gnu packages autotools) (gnu packages backup) (gnu packages check)
             (gnu packages compression) (gnu packages crypto) (gnu packages curl)
             (gnu packages databases) (gnu packages digest) (gnu packages pkg-config)
             (gnu packages sqlite) (gnu packages web))

(package
  (name "kvarc")
  (version "0.1.0")
  (source (local-file ".." "kvarc-checkout" #:recursive? #t
                      #:select? (git-predicate (dirname (current-source-directory)))))
  (build-system gnu-build-system)
  (arguments
   (list #:configure-flags
         #~(cons "--without-isal"
                 (map (lambda (name) (string-append "--with-" name "=link"))
                      '("libarchive" "jansson" "sqlite3" "libcurl" "hiredis")))
         #:test-target "check"))
  (native-inputs (list autoconf automake libtool pkg-config cmocka))
  (inputs (list xxhash `(,zstd "lib") libarchive jansson sqlite curl hiredis libsodium))
  (synopsis "Lossless archives of transformer KV caches")
  (description "kvarc packs saved KV caches of language models without loss, keeps every turn of
a session while only what is new is written, and reads ranges of layers and tokens.")
  (home-page "")
  (license license:bsd-3))
