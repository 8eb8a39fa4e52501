//! What the parts take from a keyspace's options.

use super::{KeyspaceOptions, Store};
use crate::format::compression::Compression;
use crate::sstable::filter::FilterKind;
use crate::sstable::partition::Limits;
use crate::sstable::writer::TableOptions;

/// Which values are kept apart from their keys, and how these are compressed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Apart {
    /// From which length on they are.
    pub at: u64,
    /// From which length on they stay so for good: no sweep moves them into blocks.
    pub stays_at: u64,
    /// How those are compressed that a sweep will move: as the blocks of fresh tables.
    pub passing: Compression,
    /// How those are that stay: as the blocks of settled tables.
    pub staying: Compression,
}

impl KeyspaceOptions {
    pub(crate) fn multiplier(&self) -> u64 {
        self.level_multiplier
    }

    pub(crate) fn partition(&self) -> u64 {
        self.partition_bytes
    }

    pub(crate) fn block(&self) -> u64 {
        self.block_bytes
    }

    /// Whether fresh and settled tables are compressed in the same way.
    pub(crate) fn compresses_alike(&self) -> bool {
        self.lsm_compression == self.settled_compression
    }

    pub(crate) fn delta_limit(&self) -> u64 {
        self.delta_limit_percent
    }

    pub(crate) fn over_provision(&self) -> u64 {
        self.over_provision_percent
    }

    pub(crate) fn lsm_ratio(&self) -> u64 {
        self.lsm_ratio_percent
    }

    pub(crate) fn settles_for_reads(&self) -> bool {
        self.settle_for_reads
    }

    /// From which length on values in settled tables are kept apart.
    pub(crate) fn separate_settled_at(&self) -> u64 {
        if self.move_values { self.inline_limit + 1 } else { self.separate_at }
    }

    /// Which values are kept apart that are flushed, or merged with fresh ones.
    pub(crate) fn fresh_apart(&self) -> Apart {
        let stays_at = match self.chosen_store() {
            // Compactions of levels leave values where they are.
            Store::Lsm => self.separate_at,
            Store::Tiered => self.separate_settled_at(),
        };
        let (passing, staying) = (self.lsm_compression, self.settled_compression);
        Apart { at: self.separate_at, stays_at, passing, staying }
    }

    /// Which values are kept apart that are settled.
    pub(crate) fn settled_apart(&self) -> Apart {
        let fresh = self.fresh_apart();
        Apart { at: fresh.stays_at, ..fresh }
    }

    /// How a value is compressed that will never stand beside its key.
    pub(crate) fn staying_compression(&self) -> Compression {
        self.settled_compression
    }

    fn limits(&self) -> Limits {
        Limits { block_bytes: self.block_bytes as usize }
    }

    pub(crate) fn lsm_table(&self) -> TableOptions {
        TableOptions {
            limits: self.limits(),
            index: self.lsm_index,
            compression: self.lsm_compression,
            filter: self.lsm_filter,
            filter_rests: false,
            is_scratch: false,
        }
    }

    pub(crate) fn settled_table(&self) -> TableOptions {
        // Cheap to make: who misses nothing pays for it too.
        let resting = FilterKind::BlockedBloom { bits_per_key: 10 };
        let resting = self.attach_filters.then_some(resting);
        TableOptions {
            limits: self.limits(),
            index: self.settled_index,
            compression: self.settled_compression,
            filter: self.settled_filter.or(resting),
            filter_rests: self.settled_filter.is_none(),
            is_scratch: false,
        }
    }
}
