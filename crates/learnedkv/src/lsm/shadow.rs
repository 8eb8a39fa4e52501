//! What the entries of a table being written overwrite, estimated.

use std::sync::Arc;

use super::read;
use crate::error::Result;
use crate::format::range::Ranges;
use crate::format::value::ValuePointer;
use crate::slice::Lookup;
use crate::sstable::cursor::Clipped;
use crate::sstable::reader::{Caching, Table};
use crate::sstable::sought::Sought;
use crate::view::Tables;

/// One in so many keys is looked up, by its hash, where values are short.
const SAMPLE: u64 = 256;
/// Of longer ones so many times as many as they are longer than this: all from a MiB on. A sample of a few
/// hundred values would find nothing, or take each it finds for hundreds.
const SHORT_BYTES: u64 = 4 << 10;
/// Where what is older has [long](LONG_BYTES) values for a share of all its bytes that shows (a [`SHOWS`]th), so many entries of
/// a table are looked up whatever their length is: a few removals may free most of a store, and a sample finds none of them, or takes
/// one for hundreds.
const EXACT: u64 = 1024;
const LONG_BYTES: u64 = 64 << 10;
const SHOWS: u64 = 16;
/// Of so many short ones the sample counts for as many as there were, not for as many as there should have been: what it
/// finds is then off by what it found, and no more by how many it happens to hold (by a tenth, of 30,000). Of fewer it
/// may hold hardly one.
const MANY: u64 = 16 * SAMPLE;

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
    /// The entries whose values are short: how many there were, how many were looked up, and what those overwrite.
    short: (u64, u64),
    of_short: Overwritten,
    /// How many were looked up though they are short; see [`EXACT`].
    exact: u64,
    /// What the others overwrite, each counted for as many as it stands for.
    of_long: Overwritten,
    /// What the ranges of the last table cover; see [`Shadow::close`].
    covered_bytes: u64,
}

/// Bytes of the settled run (or what is frozen), and of runs. Short entries take a fraction of one more or less.
#[derive(Debug, Clone, Copy, Default)]
struct Overwritten {
    settled: f64,
    fresh: f64,
}

impl Overwritten {
    fn add(&mut self, found: Overwritten, weight: u64) {
        self.settled += found.settled * weight as f64;
        self.fresh += found.fresh * weight as f64;
    }
}

/// How many in [`SAMPLE`] are looked up of entries that take so many bytes: a power of two, that divides it.
fn share(bytes: u64) -> u64 {
    1 << (bytes / SHORT_BYTES).clamp(1, SAMPLE).ilog2()
}

/// What so many short entries overwrite, of which so many were looked up and overwrite `found` bytes.
fn of_all(found: f64, entries: u64, looked_up: u64) -> f64 {
    match entries < MANY || looked_up == 0 {
        true => found * SAMPLE as f64,
        false => found * entries as f64 / looked_up as f64,
    }
}

/// What tables are like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Usual {
    /// What an entry takes with its value, the mean: what is overwritten or removed is as long, one thinks.
    entry_bytes: u64,
    /// Whether long values are a share of it that shows.
    has_long: bool,
    /// What stands in blocks below the runs (settled, or frozen), and of runs.
    settled: Stored,
    fresh: Stored,
}

/// The blocks of some tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Stored {
    entries: u64,
    /// What is stored, and the keys and values in it.
    bytes: u64,
    raw_bytes: u64,
}

impl Stored {
    fn with(self, table: &Table) -> Stored {
        let properties = table.properties();
        Stored {
            entries: self.entries + properties.entries,
            bytes: self.bytes + properties.data_bytes,
            raw_bytes: self.raw_bytes + properties.raw_bytes,
        }
    }

    /// What of that is an entry's whose key and value take so many: each has a head, of which all are about as long. Where they
    /// are stored in less than their length, as large a share as all. With no blocks their length.
    fn taken_by(self, raw_bytes: usize) -> f64 {
        let raw_bytes = raw_bytes as f64;
        match self.bytes.checked_sub(self.raw_bytes) {
            Some(heads) => raw_bytes + heads as f64 / self.entries.max(1) as f64,
            None => raw_bytes * self.bytes as f64 / self.raw_bytes as f64,
        }
    }
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
        let (mut bytes, mut entries, mut long_bytes) = (0, 0, 0);
        let mut add = |sum: Stored, table: &Arc<Table>| {
            let properties = table.properties();
            bytes += table.file_bytes() + properties.separated_bytes();
            entries += properties.entries;
            let long = properties
                .segments
                .iter()
                .filter(|used| used.value_bytes / used.entries.max(1) >= LONG_BYTES);
            long_bytes += long.map(|used| used.bytes).sum::<u64>();
            sum.with(table)
        };
        let (settled, fresh) =
            (settled.fold(Stored::default(), &mut add), fresh.fold(Stored::default(), &mut add));
        let has_long = long_bytes > bytes / SHOWS;
        Usual { entry_bytes: bytes / entries.max(1), has_long, settled, fresh }
    }
}

/// What an entry found takes: in a block of these, and where its value is kept apart there.
fn taken_bytes(key: &[u8], found: &Lookup, stored: Stored) -> Result<f64> {
    let (payload, apart) = match found {
        Lookup::Value(value) => (value, 0),
        Lookup::Pointer(pointer) => (pointer, ValuePointer::decode(pointer)?.stored_bytes()),
        Lookup::Removed | Lookup::Absent => return Ok(0.0),
    };
    Ok(stored.taken_by(key.len() + payload.len()) + apart as f64)
}

impl Shadow {
    /// Over nothing, until it is said what: [`Shadow::look_at`].
    pub fn over_nothing() -> Shadow {
        Shadow {
            older: None,
            usual: None,
            short: (0, 0),
            of_short: Overwritten::default(),
            exact: 0,
            of_long: Overwritten::default(),
            covered_bytes: 0,
        }
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

    /// What is still to come is these `ranges`, and no entry: the older tables are held no more.
    pub fn close(&mut self, ranges: &Ranges) {
        self.covered_bytes = self.covered(ranges);
        self.older = None;
    }

    /// An entry of this key, of that hash, is written, with a value of so many bytes; without, it removes one.
    pub fn add(&mut self, key: &[u8], hash: u64, value_bytes: Option<u64>) {
        let Some(older) = &self.older else { return };
        let usual = *self.usual.get_or_insert_with(|| Usual::of(older));
        // Many short ones may overwrite long ones.
        let mut share = share(value_bytes.unwrap_or(0).max(usual.entry_bytes));
        if usual.has_long && share < SAMPLE && self.exact < EXACT {
            self.exact += 1;
            share = SAMPLE;
        }
        let (is_short, is_looked_up) = (share == 1, hash % SAMPLE < share);
        self.short.0 += u64::from(is_short);
        if !is_looked_up {
            return;
        }
        // An estimate: what cannot be read counts as nothing, and is reported where it is needed.
        let found = self.look_up(key, usual).unwrap_or_default();
        match is_short {
            true => {
                self.short.1 += 1;
                self.of_short.add(found, 1);
            }
            false => self.of_long.add(found, SAMPLE / share),
        }
    }

    /// What `key` overwrites.
    fn look_up(&self, key: &[u8], usual: Usual) -> Result<Overwritten> {
        let sought = Sought::new(key, Caching::Leave);
        let bytes = |found: &Lookup, stored| taken_bytes(key, found, stored);
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
                            let fresh = bytes(&found, usual.fresh)?;
                            return Ok(Overwritten { settled: 0.0, fresh });
                        }
                    }
                }
                // What is frozen is settled soon.
                read::find_below_runs(tables, &sought)?
            }
        };
        Ok(Overwritten { settled: bytes(&below, usual.settled)?, fresh: 0.0 })
    }

    /// Settled bytes that `ranges` cover: whole blocks, and of separated values as large a share. Once it is closed, what
    /// those did.
    pub fn covered(&self, ranges: &Ranges) -> u64 {
        match &self.older {
            None => self.covered_bytes,
            Some(Older::Base(base, _)) => base.covered_bytes(ranges),
            Some(Older::Tables(tables, _)) => {
                read::settled_tables(tables).map(|clipped| clipped.covered_bytes(ranges)).sum()
            }
        }
    }

    /// The estimates for the table that ends now: of the settled run, and of the LSM part.
    pub fn take(&mut self) -> (u64, u64) {
        let (entries, looked_up) = std::mem::take(&mut self.short);
        let short = std::mem::take(&mut self.of_short);
        let Overwritten { settled, fresh } = std::mem::take(&mut self.of_long);
        self.exact = 0;
        let of_all = |found| of_all(found, entries, looked_up);
        ((settled + of_all(short.settled)) as u64, (fresh + of_all(short.fresh)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was taken to be as long as it is unpacked, where all it is held against is as stored: three times as many
    /// sweeps, or, of removals, more garbage than there were bytes. Where nothing is compressed its head was left out: of
    /// short values a sixth.
    #[test]
    fn an_entry_takes_its_share_of_what_its_blocks_take() {
        let value = Lookup::Value(crate::Slice::copy_from(&[7; 97]));
        let taken = |found, (entries, bytes, raw_bytes)| {
            taken_bytes(b"key", found, Stored { entries, bytes, raw_bytes }).unwrap()
        };
        assert_eq!(taken(&value, (40, 1000, 4000)), 25.0);
        assert_eq!(taken(&value, (80, 4800, 4000)), 110.0, "whatever the others are");
        assert_eq!(taken(&Lookup::Removed, (40, 1000, 4000)), 0.0);
        assert_eq!(taken(&value, (0, 0, 0)), 100.0, "no tables when it began");
        let pointer = ValuePointer { segment: 7, offset: 4096, length: 5000, packed: None };
        let mut payload = Vec::new();
        pointer.encode(&mut payload);
        let found = Lookup::Pointer(crate::Slice::copy_from(&payload));
        let expected = (3 + payload.len()) as f64 + 10.0 + pointer.stored_bytes() as f64;
        assert_eq!(taken(&found, (80, 4800, 4000)), expected);
    }

    #[test]
    fn a_sample_counts_for_all_there_were_and_a_small_one_for_all_it_stands_for() {
        assert_eq!(of_all(1000.0, MANY, 10), 100.0 * MANY as f64);
        assert_eq!(of_all(1000.0, MANY - 1, 10), 1000.0 * SAMPLE as f64);
        assert_eq!(of_all(0.0, MANY, 0), 0.0);
    }

    #[test]
    fn long_values_are_all_looked_up_and_short_ones_sampled() {
        let kib = 1 << 10;
        let lengths = [0, 1, 4 * kib, 8 * kib - 1, 8 * kib, 100 * kib, 1023 * kib, 1024 * kib];
        assert_eq!(lengths.map(share), [1, 1, 1, 1, 2, 16, 128, 256]);
        assert_eq!(share(u64::MAX), SAMPLE);
    }
}
