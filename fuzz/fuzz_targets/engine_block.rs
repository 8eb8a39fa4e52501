//! Untrusted bytes as a data block; see `learnedkv::fuzzing`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    learnedkv::fuzzing::block(data);
});
