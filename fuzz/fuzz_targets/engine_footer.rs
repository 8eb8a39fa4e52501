//! Untrusted bytes as a table footer and the section directory behind it; see `learnedkv::fuzzing`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    learnedkv::fuzzing::footer(data);
});
