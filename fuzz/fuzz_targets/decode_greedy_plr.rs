//! Untrusted bytes as a Greedy-PLR model: the first eight are a query, the rest the encoding.
#![no_main]

use learned::{GreedyPlr, Model, Persist};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((query, bytes)) = data.split_first_chunk::<8>() else { return };
    let Ok(model) = GreedyPlr::decode(bytes) else { return };
    for key in [u64::from_le_bytes(*query), 0, u64::MAX] {
        let bound = model.bound(key);
        assert!(bound.first <= bound.last && bound.last <= model.len());
    }
    // What was accepted is a model like any other: it encodes, and comes back the same.
    let mut again = Vec::new();
    model.encode(&mut again);
    assert_eq!(GreedyPlr::decode(&again), Ok(model));
});
