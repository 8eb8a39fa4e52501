//! Untrusted bytes as a table's properties; see `learnedkv::fuzzing`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    learnedkv::fuzzing::properties(data);
});
