//! What the entries of a table being written overwrite, estimated.

use std::sync::Arc;

use super::read;
use crate::error::Result;
use crate::format::range::Ranges;
use crate::slice::Lookup;
use crate::sstable::reader::Caching;
use crate::sstable::sought::Sought;
use crate::view::Tables;

/// One in so many keys is looked up, by its hash.
const SAMPLE: u64 = 256;

/// Bytes of older entries that the entries of a table being written overwrite or remove, estimated from one
/// in [`SAMPLE`] of its keys. Of each key the newest older version counts: what that overwrites itself is
/// counted where it stands.
pub struct Shadow {
    /// None: nothing is looked up now.
    tables: Option<Arc<Tables>>,
    /// How many runs are no older than the table.
    newer: usize,
    settled_bytes: u64,
    fresh_bytes: u64,
}

impl Shadow {
    /// Over all of `tables` but the `newer` newest runs.
    pub fn over(tables: Option<Arc<Tables>>, newer: usize) -> Shadow {
        Shadow { tables, newer, settled_bytes: 0, fresh_bytes: 0 }
    }

    /// Over these tables from now on, likewise. Those of before are held no more.
    pub fn look_at(&mut self, tables: Option<Arc<Tables>>) {
        self.tables = tables;
    }

    /// An entry of this key, of that hash, is written.
    pub fn add(&mut self, key: &[u8], hash: u64) {
        if hash.is_multiple_of(SAMPLE) {
            // An estimate: what cannot be read counts as nothing, and is reported where it is needed.
            let _ = self.look_up(key);
        }
    }

    fn look_up(&mut self, key: &[u8]) -> Result<()> {
        let Some(tables) = &self.tables else { return Ok(()) };
        let sought = Sought::new(key, Caching::Leave);
        let bytes = |found: &Lookup| {
            let stored = read::stored_length(found)?;
            Ok(stored.map_or(0, |n| key.len() as u64 + n))
        };
        // Levels are compacted by their sizes, whatever they overwrite.
        let newer = if tables.level_count > 0 { tables.runs.len() } else { self.newer };
        for run in tables.runs.iter().skip(newer) {
            match read::find_in_run(run, &sought)? {
                Lookup::Absent => {}
                found => {
                    self.fresh_bytes += bytes(&found)?;
                    return Ok(());
                }
            }
        }
        // What is frozen is settled soon.
        self.settled_bytes += bytes(&read::find_below_runs(tables, &sought)?)?;
        Ok(())
    }

    /// Settled bytes that `ranges` cover: whole blocks, and of separated values as large a share.
    pub fn covered(&self, ranges: &Ranges) -> u64 {
        let settled = self.tables.iter().flat_map(|tables| read::settled_tables(tables));
        settled.map(|clipped| clipped.covered_bytes(ranges)).sum()
    }

    /// The estimates for the table that ends now: of the settled run, and of the LSM part.
    pub fn take(&mut self) -> (u64, u64) {
        let taken = (self.settled_bytes * SAMPLE, self.fresh_bytes * SAMPLE);
        (self.settled_bytes, self.fresh_bytes) = (0, 0);
        taken
    }
}
