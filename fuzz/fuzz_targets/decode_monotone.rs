//! Untrusted bytes as a monotone sequence: the first eight are a query, the rest the encoding.
#![no_main]

use learned::monotone::Monotone;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((query, bytes)) = data.split_first_chunk::<8>() else { return };
    let Ok(sequence) = Monotone::decode(bytes) else { return };
    let (query, length) = (u64::from_le_bytes(*query), sequence.len());
    assert_eq!(sequence.is_empty(), length == 0);
    for x in [query, 0, u64::MAX] {
        assert!(sequence.rank(x) <= length);
        assert_eq!(sequence.pair(x), (sequence.get(x), sequence.get(x.saturating_add(1))));
    }
    let mut places = vec![0, 63, 64, length / 2, length.saturating_sub(1), length];
    places.push(query % length.max(1));
    for place in places {
        let pair = (sequence.get(place), sequence.get(place.saturating_add(1)));
        assert_eq!(sequence.pair(place), pair);
        assert!(place < length || pair.0 == 0);
    }
    assert!(sequence.size_bytes() <= bytes.len() + 256);
});
