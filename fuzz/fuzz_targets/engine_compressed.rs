//! Untrusted bytes as what lz4 or zstd decompresses; see `learnedkv::fuzzing`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    learnedkv::fuzzing::compressed(data);
});
