//! How large tables get, and levels: what the options say, but less on a small disk.
//!
//! What is written anew needs room before anything is given back, and a full disk has no more of it than the ballast: an eighth
//! of the disk, half of it for flushes and removals. A step that needed more would never be done, whatever was removed.

use super::{KeyspaceOptions, Store};

/// A step of a sweep writes one partition: it takes half of the ballast at most.
const PARTITION_SHARE: u64 = 16;
/// A compaction writes a table and what of the level below lies under it, some ten times as much (the multiplier of levels).
const LEVEL_TABLE_SHARE: u64 = 256;
/// Runs are compacted with all of the base that they overlap, which may be all of it.
const LEVEL_BASE_SHARE: u64 = 16;
/// So much of the disk may be garbage, or wait to be settled, that is not worth a sweep: where that was more than the disk has left it
/// was full of it, and puts were refused.
const CONVERSION_SHARE: u64 = 16;
/// On a small disk it is no less than this: of tables less small there would be very many, and some file systems say that
/// they have no room at all.
const LEAST_BYTES: u64 = 256 << 10;

/// What is `asked` for, but no more than one in `share` parts of a disk of so many bytes; `None`: a large one.
fn on_disk(asked: u64, share: u64, disk_bytes: Option<u64>) -> u64 {
    disk_bytes.map_or(asked, |disk_bytes| asked.min((disk_bytes / share).max(LEAST_BYTES)))
}

/// How large the disk is that a keyspace stands on; `None`: a large one. It was not asked for: options that differ in nothing else are
/// equal, and it is not persisted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OnDisk(Option<u64>);

impl PartialEq for OnDisk {
    fn eq(&self, _: &OnDisk) -> bool {
        true
    }
}

impl Eq for OnDisk {}

impl KeyspaceOptions {
    /// The same for a keyspace on a disk of so many bytes.
    pub(crate) fn on_disk_of(mut self, disk_bytes: Option<u64>) -> KeyspaceOptions {
        self.disk = OnDisk(disk_bytes);
        self
    }

    /// So much is worth a sweep, bytes: what was asked for, but no more than a part of the disk.
    pub(crate) fn min_conversion(&self) -> u64 {
        on_disk(self.min_conversion_bytes, CONVERSION_SHARE, self.disk.0)
    }
}

/// How large new tables of a keyspace get, and the highest level in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// The most that a table takes: a partition, or a part of a level; bytes.
    pub table_bytes: u64,
    /// The most that the highest level in use takes, bytes.
    pub level_base_bytes: u64,
}

impl Sizes {
    /// Those of a keyspace with these options on a disk of so many bytes; `None`: a large one.
    pub fn of(options: &KeyspaceOptions, disk_bytes: Option<u64>) -> Sizes {
        let table_share = match options.chosen_store() {
            Store::Tiered => PARTITION_SHARE,
            Store::Lsm => LEVEL_TABLE_SHARE,
        };
        Sizes {
            table_bytes: on_disk(options.partition_bytes, table_share, disk_bytes),
            level_base_bytes: on_disk(options.level_base_bytes, LEVEL_BASE_SHARE, disk_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_a_part_of_the_disk_and_never_next_to_nothing() {
        let asked = [64 << 20, 64 << 10];
        let sizes = |store, disk: u64| {
            asked.map(|asked| {
                let options = KeyspaceOptions::default().store(store).partition_bytes(asked);
                Sizes::of(&options, Some(disk)).table_bytes
            })
        };
        assert_eq!(sizes(Store::Tiered, 1 << 40), asked);
        assert_eq!(sizes(Store::Tiered, 256 << 20), [16 << 20, 64 << 10]);
        assert_eq!(sizes(Store::Lsm, 1 << 40), asked);
        assert_eq!(sizes(Store::Lsm, 256 << 20), [1 << 20, 64 << 10]);
        for store in [Store::Tiered, Store::Lsm] {
            assert_eq!([sizes(store, 1 << 20), sizes(store, 0)], [[256 << 10, 64 << 10]; 2]);
        }
        let worth = |disk| KeyspaceOptions::default().on_disk_of(disk).min_conversion();
        assert_eq!([None, Some(1 << 40), Some(8 << 30)].map(worth), [512 << 20; 3]);
        assert_eq!([1 << 30, 0].map(|disk| worth(Some(disk))), [64 << 20, 256 << 10]);
        // Whoever makes another keyspace with the same options asks for what was asked for here.
        let asked = KeyspaceOptions::default();
        let here = asked.clone().on_disk_of(Some(1 << 30));
        assert_eq!((&here, here.encode()), (&asked, asked.encode()));
        let base = |disk| Sizes::of(&KeyspaceOptions::default(), disk).level_base_bytes;
        assert_eq!([None, Some(1 << 40)].map(base), [128 << 20; 2]);
        assert_eq!([256 << 20, 0].map(|disk| base(Some(disk))), [16 << 20, 256 << 10]);
    }
}
