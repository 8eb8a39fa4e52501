//! Untrusted bytes as a batch, the payload of a log record; see `learnedkv::fuzzing`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    learnedkv::fuzzing::batch(data);
});
