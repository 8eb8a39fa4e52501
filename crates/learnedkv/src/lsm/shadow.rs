//! What the entries of a table being written overwrite, estimated.

use std::sync::Arc;

use super::read;
use crate::error::Result;
use crate::format::range::Ranges;
use crate::slice::Lookup;
use crate::sstable::cursor::Clipped;
use crate::sstable::reader::{Caching, Table};
use crate::sstable::scale;
use crate::sstable::sought::Sought;
use crate::view::Tables;

/// One in so many keys is looked up, by its hash, where values are short.
const SAMPLE: u64 = 256;
/// Of longer ones so many times as many as they are longer than this: all from a MiB on. A sample of a few
/// hundred values would find nothing, or take each it finds for hundreds.
const SHORT_BYTES: u64 = 4 << 10;

/// What is older than a table being written.
enum Older {
    /// All of these but the newest runs, so many.
    Tables(Arc<Tables>, usize),
    /// The base that a delta is written for, but for the keys in these ranges, which the delta says are gone.
    Base(Clipped, Ranges),
}

/// Bytes of older entries that the entries of a table being written overwrite or remove, estimated from a sample of
/// its keys. Of each key the newest older version counts: what that overwrites itself is
/// counted where it stands.
pub struct Shadow {
    /// None: nothing is looked up now.
    older: Option<Older>,
    /// What the first tables are like.
    usual: Option<Usual>,
    settled_bytes: u64,
    fresh_bytes: u64,
}

/// How many in [`SAMPLE`] are looked up of entries that take so many bytes: a power of two, that divides it.
fn share(bytes: u64) -> u64 {
    1 << (bytes / SHORT_BYTES).clamp(1, SAMPLE).ilog2()
}

/// What tables are like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Usual {
    /// What an entry takes with its value, the mean: removed ones are as long, one thinks.
    entry_bytes: u64,
    /// What stands in blocks below the runs (settled, or frozen), and of runs: as stored, and unpacked.
    settled: (u64, u64),
    fresh: (u64, u64),
}

impl Usual {
    fn of(older: &Older) -> Usual {
        let tables = match older {
            Older::Tables(tables, _) => tables,
            Older::Base(base, _) => {
                return Usual::of_tables(std::iter::once(&base.table), std::iter::empty());
            }
        };
        let frozen = tables.frozen.iter().flat_map(|frozen| frozen.runs.iter().flatten());
        Usual::of_tables(tables.settled().chain(frozen), tables.runs.iter().flatten())
    }

    fn of_tables<'a>(
        settled: impl Iterator<Item = &'a Arc<Table>>,
        fresh: impl Iterator<Item = &'a Arc<Table>>,
    ) -> Usual {
        let (mut bytes, mut entries) = (0, 0);
        let mut add = |sum: (u64, u64), table: &Arc<Table>| {
            let properties = table.properties();
            bytes += table.file_bytes() + properties.separated_bytes();
            entries += properties.entries;
            (sum.0 + properties.data_bytes, sum.1 + properties.unpacked_bytes)
        };
        let (settled, fresh) = (settled.fold((0, 0), &mut add), fresh.fold((0, 0), &mut add));
        Usual { entry_bytes: bytes / entries.max(1), settled, fresh }
    }
}

/// What an entry found takes where it stands: in blocks packed as these are, so many bytes for so many. Where there
/// were none yet it takes its length.
fn taken_bytes(key: &[u8], found: &Lookup, packed: (u64, u64)) -> Result<u64> {
    let bytes = read::stored_length(found)?.map_or(0, |n| key.len() as u64 + n);
    Ok(match found {
        Lookup::Value(_) if packed.1 > 0 => scale(bytes, packed.0, packed.1),
        _ => bytes,
    })
}

impl Shadow {
    /// Over nothing, until it is said what: [`Shadow::look_at`].
    pub fn over_nothing() -> Shadow {
        Shadow { older: None, usual: None, settled_bytes: 0, fresh_bytes: 0 }
    }

    /// Over all of `tables` but the `newer` newest runs.
    pub fn over(tables: Arc<Tables>, newer: usize) -> Shadow {
        Shadow { older: Some(Older::Tables(tables, newer)), ..Shadow::over_nothing() }
    }

    /// Of a delta with these removed ranges: over its base. What the ranges cover counts once.
    pub fn over_base(base: Clipped, removed: Ranges) -> Shadow {
        Shadow { older: Some(Older::Base(base, removed)), ..Shadow::over_nothing() }
    }

    /// Over all of these tables from now on. Those of before are held no more.
    pub fn look_at(&mut self, tables: Option<Arc<Tables>>) {
        self.older = tables.map(|tables| Older::Tables(tables, 0));
    }

    /// An entry of this key, of that hash, is written, with a value of so many bytes; without, it removes one.
    pub fn add(&mut self, key: &[u8], hash: u64, value_bytes: Option<u64>) {
        let Some(older) = &self.older else { return };
        let usual = *self.usual.get_or_insert_with(|| Usual::of(older));
        let share = share(value_bytes.unwrap_or(usual.entry_bytes));
        if hash % SAMPLE < share {
            // An estimate: what cannot be read counts as nothing, and is reported where it is needed.
            let _ = self.look_up(key, SAMPLE / share, usual);
        }
    }

    /// Counts what `key` overwrites, for `weight` keys.
    fn look_up(&mut self, key: &[u8], weight: u64, usual: Usual) -> Result<()> {
        let sought = Sought::new(key, Caching::Leave);
        let bytes =
            |found: &Lookup, packed| Ok(taken_bytes(key, found, packed)?.saturating_mul(weight));
        let below = match &self.older {
            None => Lookup::Absent,
            Some(Older::Base(_, removed)) if removed.covers(key) => Lookup::Absent,
            Some(Older::Base(base, _)) => base.table.get(&sought)?,
            Some(Older::Tables(tables, newer)) => {
                // Levels are compacted by their sizes, whatever they overwrite.
                let newer = if tables.level_count > 0 { tables.runs.len() } else { *newer };
                for run in tables.runs.iter().skip(newer) {
                    match read::find_in_run(run, &sought)? {
                        Lookup::Absent => {}
                        found => {
                            self.fresh_bytes += bytes(&found, usual.fresh)?;
                            return Ok(());
                        }
                    }
                }
                // What is frozen is settled soon.
                read::find_below_runs(tables, &sought)?
            }
        };
        self.settled_bytes += bytes(&below, usual.settled)?;
        Ok(())
    }

    /// Settled bytes that `ranges` cover: whole blocks, and of separated values as large a share.
    pub fn covered(&self, ranges: &Ranges) -> u64 {
        match &self.older {
            None => 0,
            Some(Older::Base(base, _)) => base.covered_bytes(ranges),
            Some(Older::Tables(tables, _)) => {
                read::settled_tables(tables).map(|clipped| clipped.covered_bytes(ranges)).sum()
            }
        }
    }

    /// The estimates for the table that ends now: of the settled run, and of the LSM part.
    pub fn take(&mut self) -> (u64, u64) {
        let taken = (self.settled_bytes, self.fresh_bytes);
        (self.settled_bytes, self.fresh_bytes) = (0, 0);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was taken to be as long as it is unpacked, where all it is held against is as stored: three times as many
    /// sweeps, or, of removals, more garbage than there were bytes.
    #[test]
    fn what_stands_in_compressed_blocks_takes_less_than_its_length() {
        let value = Lookup::Value(crate::Slice::copy_from(&[7; 97]));
        assert_eq!(taken_bytes(b"key", &value, (1000, 4000)).unwrap(), 25);
        assert_eq!(taken_bytes(b"key", &value, (4000, 4000)).unwrap(), 100);
        assert_eq!(taken_bytes(b"key", &Lookup::Removed, (1000, 4000)).unwrap(), 0);
        assert_eq!(taken_bytes(b"key", &value, (0, 0)).unwrap(), 100, "no tables when it began");
    }

    #[test]
    fn long_values_are_all_looked_up_and_short_ones_sampled() {
        let kib = 1 << 10;
        let lengths = [0, 1, 4 * kib, 8 * kib - 1, 8 * kib, 100 * kib, 1023 * kib, 1024 * kib];
        assert_eq!(lengths.map(share), [1, 1, 1, 1, 2, 16, 128, 256]);
        assert_eq!(share(u64::MAX), SAMPLE);
    }
}
