//! What the entries of a table being written overwrite in the settled run, estimated.

use std::sync::Arc;

use super::read;
use crate::format::checksum::key_hash;
use crate::format::range::Ranges;
use crate::sstable::reader::Caching;
use crate::sstable::sought::Sought;
use crate::view::Tables;

/// One in so many keys is looked up, by its hash.
const SAMPLE: u64 = 256;

/// Bytes of settled entries that the entries of a table being written overwrite or remove, estimated
/// from one in [`SAMPLE`] of its keys.
pub struct Shadow {
    settled: Arc<Tables>,
    sampled_bytes: u64,
}

impl Shadow {
    /// Over the settled run of `settled`.
    pub fn over(settled: &Arc<Tables>) -> Shadow {
        Shadow { settled: settled.clone(), sampled_bytes: 0 }
    }

    /// An entry of this key is written.
    pub fn add(&mut self, key: &[u8]) {
        if !key_hash(key).is_multiple_of(SAMPLE) {
            return;
        }
        // An estimate: what cannot be read counts as nothing, and is reported where it is needed.
        if let Ok(found) = read::find_settled(&self.settled, &Sought::new(key, Caching::Leave))
            && let Ok(Some(length)) = read::length(&found)
        {
            self.sampled_bytes += key.len() as u64 + length;
        }
    }

    /// Settled bytes that `ranges` cover: whole blocks, and of separated values as large a share.
    pub fn covered(&self, ranges: &Ranges) -> u64 {
        let settled = read::settled_tables(&self.settled);
        settled.map(|clipped| clipped.covered_bytes(ranges)).sum()
    }

    /// The estimate for the table that ends now.
    pub fn take(&mut self) -> u64 {
        std::mem::take(&mut self.sampled_bytes) * SAMPLE
    }
}
