//! Untrusted bytes as an exact directory: the first says how many of the others are a key.
#![no_main]

use learned::exact::Directory;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&length, rest)) = data.split_first() else { return };
    let (key, bytes) = rest.split_at(usize::from(length).min(rest.len()));
    let Ok(directory) = Directory::decode(bytes) else { return };
    let blocks = directory.block_count();
    let mut named = vec![0, blocks / 2, blocks.saturating_sub(1), blocks, u64::MAX];
    let last = directory.separator(blocks.saturating_sub(1));
    for key in [key, &[], &[0xff; 20], &last] {
        let block = directory.locate(key);
        assert!(block < blocks.max(1), "block {block} of {blocks}");
        named.push(block);
    }
    for block in named {
        directory.separator(block);
        let extent = directory.extent(block);
        assert!(block < blocks || extent == (0, 0));
    }
    let statistics = directory.statistics();
    assert!(statistics.size_bytes <= 64 * bytes.len() + 4096, "{statistics:?}");
});
