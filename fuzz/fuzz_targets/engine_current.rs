//! Untrusted bytes as `CURRENT`; see `learnedkv::fuzzing`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    learnedkv::fuzzing::current(data);
});
