//! What a database holds and what it cost.

mod show;

use std::sync::atomic::Ordering::Relaxed;

use crate::engine::Engine;
use crate::lsm::garbage;
use crate::lsm::levels::{DUE, Shape};
use crate::options::Store;
use crate::tiered::{Debt, Space, price};
use crate::view::{KeyspaceView, SHARES, Tables, View};

/// A level of a keyspace of [`Store::Lsm`] now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelStats {
    /// Which: 0 are the runs above the levels.
    pub level: u64,
    /// Its tables.
    pub tables: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// How many bytes it should have at most. The last level may have as many as it has.
    pub target_bytes: u64,
    /// How much of that it has, percent: from 100 on it is compacted. The runs count by their number too.
    pub score_percent: u64,
}

/// What a keyspace holds now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyspaceStats {
    /// Its name.
    pub name: String,
    /// Its store.
    pub store: Store,
    /// In a keyspace of [`Store::Lsm`] the runs and the levels that have tables. They count as the LSM
    /// part; nothing is settled.
    pub levels: Vec<LevelStats>,
    /// Bytes of its memtables.
    pub memtable_bytes: u64,
    /// Entries in them: each version that was put and each removal, flushed or overwritten or not.
    pub memtable_entries: u64,
    /// Bytes of the files of very long values that are in memtables by their pointers alone: streamed, or as long as
    /// streamed ones. In [`value_bytes`](Self::value_bytes) and [`space_bytes`](Self::space_bytes) once they are flushed.
    pub streamed_bytes: u64,
    /// What is not settled, bytes: the keys and values in memtables, and the LSM part with the values kept apart that it
    /// points at.
    pub unsettled_bytes: u64,
    /// Runs of its LSM part, and of its frozen part. A level that has tables is one.
    pub runs: u64,
    /// Entries in these runs.
    pub lsm_entries: u64,
    /// Bytes of their files.
    pub lsm_bytes: u64,
    /// Partitions of its settled run.
    pub partitions: u64,
    /// Partitions that have a delta table.
    pub deltas: u64,
    /// While a sweep is under way: it has settled all keys below this one.
    pub watermark: Option<Vec<u8>>,
    /// Entries in its partitions' tables.
    pub settled_entries: u64,
    /// Bytes of their files.
    pub settled_bytes: u64,
    /// Bytes of the values kept apart that they point at.
    pub settled_value_bytes: u64,
    /// Value segments that its tables point into.
    pub value_segments: u64,
    /// Bytes of their files.
    pub value_bytes: u64,
    /// Of these, bytes that a table points at; the rest is overwritten or removed, and the files' headers.
    pub value_live_bytes: u64,
    /// How long the values are that tables point at, bytes: uncompressed, without checksums.
    pub unpacked_value_bytes: u64,
    /// Bytes of memory that find the blocks of all its tables.
    pub metadata_bytes: u64,
    /// Tables that have a filter in memory.
    pub filters: u64,
    /// Tables whose filter rests in its file, until misses have paid for its place in memory.
    pub resting_filters: u64,
    /// Of these, tables whose filter would be in memory, if metadata had had room for it when it was to come: as the table
    /// was opened, if the keyspace asks for its filter, or as misses had paid for it. It comes once misses have paid again and
    /// there is room ([`crate::Builder::metadata_percent`]).
    pub filters_without_room: u64,
    /// Bytes that the files of all filters take.
    pub filter_file_bytes: u64,
    /// Bytes of memory that these filters take; part of `metadata_bytes`.
    pub filter_bytes: u64,
    /// Filters over several runs: one for each generation of the LSM part that has any.
    pub generations: u64,
    /// Bytes of memory that these take; part of `metadata_bytes`.
    pub generation_bytes: u64,
    /// Entries of the tables that have a filter in memory.
    pub filtered_entries: u64,
    /// Bytes of the index sections of all its tables, as they stand on the disk.
    pub index_bytes: u64,
    /// Tables whose index is not with them, because metadata would take more than half of the
    /// memory budget: it is read when it is needed, and then in the cache.
    pub paged_tables: u64,
    /// Bytes of these tables' index sections; not part of `metadata_bytes`.
    pub paged_index_bytes: u64,
    /// Data blocks of all its tables.
    pub blocks: u64,
    /// Of these, blocks that an index finds by separators in full, though its kind has models: a model would
    /// not tell them apart, take more, or name more than 64 KiB of them. Of an index that is not with its table, here and
    /// in the next two, what it was when it was last read: nothing before that.
    pub separated_blocks: u64,
    /// Pieces of these indexes that have a model or separators in full, each for itself: of the kind `exact` some 64 blocks
    /// each.
    pub index_chunks: u64,
    /// Separators of the kind `exact` that lie off the line of their chunk and are stored by themselves.
    pub separator_exceptions: u64,
    /// Bytes of these blocks as they are stored, with their padding.
    pub block_bytes: u64,
    /// Bytes they would take if none were compressed, with their padding.
    pub unpacked_block_bytes: u64,
    /// Bytes of the keys and values in them.
    pub entry_bytes: u64,
    /// What its tables and value segments take on the disk, bytes, without their filters and what snapshots alone hold up.
    pub space_bytes: u64,
    /// How much of that would be left if all were settled now and no partition had a delta, bytes, at most all of it: an
    /// estimate, from samples of keys. (While a sweep is under way it asks the indexes of what is being settled, which are
    /// read where they are paged.) In a keyspace of [`Store::Lsm`] nothing is estimated, and all counts as live.
    pub live_bytes: u64,
    /// So much garbage may lie, bytes: `over_provision_percent` of what is live, or `min_conversion_bytes` if that
    /// is more. With it a sweep is due at the latest, once there is anything fresh to settle, and garbage beyond it presses
    /// writers. 0 in a keyspace of [`Store::Lsm`].
    pub garbage_allowed_bytes: u64,
    /// Read requests that reads made since the last sweep began, and would not have made if all were settled (an estimate; those of
    /// values kept apart that will stand in blocks), and what reads in memory took longer, as requests. 0 where no sweep
    /// would begin for them.
    pub unsettled_requests: u64,
    /// With so many of these a sweep is due ([`crate::KeyspaceOptions::settle_for_reads`]), however little there is to
    /// settle, if the disk has room for what that moves. An estimate; 0 where nothing was paid.
    pub settling_price_requests: u64,
    /// Of what reads paid since runs were merged last, so many requests would not have been made of one run instead of several.
    pub unmerged_requests: u64,
    /// With so many of these all runs become one, if that is a quarter of `settling_price_requests` at the most. An estimate; 0
    /// where nothing was paid.
    pub merging_price_requests: u64,
    /// How hard background work presses writers, from 0 (they do not pay) to 1000 (they pay the most): see
    /// [`Stats::held_back_ms`] for what that came to.
    pub pressure_permille: u64,
    /// Removed ranges that its tables say, until they are settled.
    pub removed_ranges: u64,
    /// Tables whose files were damaged or missing when the database was opened.
    pub damaged_tables: u64,
    /// Value segments that its tables point into whose files were so.
    pub damaged_segments: u64,
}

/// What part `some` is of it and `others`, 0 to 1; 0 of nothing.
fn share(some: u64, others: u64) -> f64 {
    some as f64 / (some + others).max(1) as f64
}

fn levels(view: &KeyspaceView, engine: &Engine) -> Vec<LevelStats> {
    if view.options.chosen_store() != Store::Lsm {
        return Vec::new();
    }
    let (tables, sizes) = (&view.tables, engine.sizes(&view.options));
    let shape = Shape::of(tables, &view.options, sizes);
    let runs = tables.fresh().iter().map(Vec::len).sum();
    let counts = std::iter::once(runs).chain(tables.levels().iter().map(Vec::len));
    let levels = counts.enumerate().filter(|(_, count)| *count > 0);
    let stats = levels.map(|(level, count)| LevelStats {
        level: level as u64,
        tables: count as u64,
        bytes: shape.bytes(level),
        target_bytes: shape.target(level),
        score_percent: shape.score(level, 0) / (DUE / 100),
    });
    stats.collect()
}

impl KeyspaceStats {
    fn add_segments(&mut self, tables: &Tables) {
        let damaged = tables.segments.iter().filter(|segment| segment.damage().is_some());
        self.damaged_segments = damaged.count() as u64;
        self.value_segments = tables.segments.iter().count() as u64;
        self.value_bytes = tables.segments.iter().map(|s| s.occupied_bytes()).sum();
        self.value_live_bytes = garbage::live_bytes(tables);
    }

    pub(crate) fn of(view: &KeyspaceView, engine: &Engine) -> KeyspaceStats {
        let tables = &view.tables;
        let memtables =
            || std::iter::once(&view.active).chain(view.sealed.iter().map(|s| &s.memtable));
        let mut stats = KeyspaceStats {
            name: view.name.to_string(),
            memtable_bytes: memtables().map(|m| m.size_bytes() as u64).sum(),
            memtable_entries: memtables().map(|m| m.counts().0).sum(),
            streamed_bytes: memtables().map(|m| m.streamed.bytes()).sum(),
            unsettled_bytes: memtables().map(|m| m.put_bytes() + m.streamed.bytes()).sum(),
            store: view.options.chosen_store(),
            levels: levels(view, engine),
            runs: (tables.runs.iter().filter(|run| !run.is_empty()).count()
                + tables.frozen.as_ref().map_or(0, |f| f.runs.len())) as u64,
            partitions: match view.options.chosen_store() {
                Store::Lsm => 0,
                _ => tables.partitions.len() as u64,
            },
            deltas: tables.partitions.iter().filter(|p| p.delta.is_some()).count() as u64,
            watermark: tables.frozen.as_ref().map(|frozen| frozen.watermark.clone()),
            pressure_permille: engine.pace.pressure(view.id),
            ..KeyspaceStats::default()
        };
        let frozen = tables.frozen.iter().flat_map(|f| &f.runs);
        for table in tables.runs.iter().chain(frozen).flatten() {
            stats.lsm_entries += table.properties().entries;
            stats.lsm_bytes += table.file_bytes();
            stats.unsettled_bytes += table.file_bytes() + table.properties().separated_bytes();
        }
        for table in tables.settled() {
            stats.settled_entries += table.properties().entries;
            stats.settled_bytes += table.file_bytes();
            stats.settled_value_bytes += table.properties().separated_bytes();
        }
        for table in tables.all() {
            stats.metadata_bytes += table.metadata_bytes() as u64;
            if let Some(bytes) = table.filter_bytes() {
                stats.filters += 1;
                stats.filter_bytes += bytes as u64;
                stats.filtered_entries += table.properties().entries;
            }
            stats.resting_filters += u64::from(table.has_resting_filter());
            stats.filters_without_room += u64::from(table.lacks_room_for_filter());
            stats.filter_file_bytes += table.filter_file_bytes();
            stats.index_bytes += table.index_bytes();
            if table.is_paged() && table.damage().is_none() {
                stats.paged_tables += 1;
                stats.paged_index_bytes += table.index_bytes();
            }
            stats.blocks += table.block_count();
            let makeup = table.index_makeup();
            stats.separated_blocks += makeup.separated_blocks;
            stats.index_chunks += makeup.chunks;
            stats.separator_exceptions += makeup.exceptions;
            stats.block_bytes += table.properties().data_bytes;
            stats.unpacked_block_bytes += table.properties().unpacked_bytes;
            stats.entry_bytes += table.properties().raw_bytes;
            stats.removed_ranges += table.properties().ranges;
            stats.unpacked_value_bytes += table.properties().separated_value_bytes();
        }
        stats.damaged_tables = tables.damaged.len() as u64;
        for generation in tables.generations() {
            stats.generations += 1;
            stats.generation_bytes += generation.size_bytes() as u64;
        }
        stats.metadata_bytes += stats.generation_bytes;
        stats.add_segments(tables);
        stats.add_space(view);
        stats
    }

    fn add_space(&mut self, view: &KeyspaceView) {
        if self.store == Store::Lsm {
            self.space_bytes = Space::used(&view.tables);
            self.live_bytes = self.space_bytes;
            return;
        }
        let space = Space::of(&view.tables);
        self.space_bytes = space.used;
        self.live_bytes = space.live.min(space.used);
        self.garbage_allowed_bytes = Debt::of(&view.tables).allows(&view.options);
        self.unsettled_requests = view.rent.paid();
        if self.unsettled_requests > 0 {
            self.settling_price_requests = price::of(view);
        }
        self.unmerged_requests = view.merging.paid() / SHARES;
        if self.unmerged_requests > 0 {
            self.merging_price_requests = price::of_merge(view);
        }
    }

    /// Metadata, bits per entry of all tables.
    pub fn metadata_bits_per_entry(&self) -> f64 {
        let entries = (self.lsm_entries + self.settled_entries).max(1);
        self.metadata_bytes as f64 * 8.0 / entries as f64
    }

    /// How many times as long the blocks would be uncompressed; 1 if there are none.
    pub fn compression_ratio(&self) -> f64 {
        self.unpacked_block_bytes.max(1) as f64 / self.block_bytes.max(1) as f64
    }

    /// What filters take in memory, bits per entry of the tables that have one; 0 if none has.
    pub fn filter_bits_per_key(&self) -> f64 {
        self.filter_bytes as f64 * 8.0 / self.filtered_entries.max(1) as f64
    }

    /// The share of entries that are settled, 0 to 1; 1 if there are none. Those of memtables and of the LSM part are not.
    pub fn settled_share(&self) -> f64 {
        1.0 - share(self.lsm_entries + self.memtable_entries, self.settled_entries)
    }

    /// The same by what entries take, with the values kept apart that they point at.
    pub fn settled_share_of_bytes(&self) -> f64 {
        1.0 - share(self.unsettled_bytes, self.settled_bytes + self.settled_value_bytes)
    }
}

/// Lookups of single keys that were answered alike.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GetStats {
    /// How many.
    pub gets: u64,
    /// Read requests to the disk that they made together. What the keys of a `multi_get` share counts for one of them.
    pub requests: u64,
}

impl GetStats {
    /// How many requests one of them took; 0 if there was none.
    pub fn requests_per_get(&self) -> f64 {
        self.requests as f64 / self.gets.max(1) as f64
    }
}

/// What a database holds now, and what it cost since it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Each keyspace.
    pub keyspaces: Vec<KeyspaceStats>,
    /// All memory the database may use.
    pub memory_budget_bytes: u64,
    /// Bytes of memtables that were flushed, and that readers alone keep: snapshots, iterators, whoever thinks in `update`. The
    /// cache has so much less. More than an eighth of the budget is written to
    /// files; more than a half, where that writes many times what it gives back.
    pub pinned_memory_bytes: u64,
    /// Bytes of files, and of parts that a sweep has moved, that only snapshots and reads under way keep.
    pub pinned_disk_bytes: u64,
    /// Bytes of files that nobody uses any more, and that are not removed yet: merges, sweeps and compactions of a keyspace
    /// wait where it has replaced many of them. With the one that is kept while a sweep goes on, to be written over.
    pub unremoved_bytes: u64,
    /// Times that a snapshot's or an iterator's memtables were written to a file.
    pub spills: u64,
    /// Bytes of cached blocks, and of cached indexes of paged tables.
    pub cache_bytes: u64,
    /// The most the cache may hold now.
    pub cache_capacity_bytes: u64,
    /// Blocks found in the cache.
    pub cache_hits: u64,
    /// Blocks read, or decompressed, where the operating system holds them (`Builder::mapped_reads`).
    pub mapped_reads: u64,
    /// How often such a block was looked at and was not there any more.
    pub lost_mappings: u64,
    /// Read requests that went around the operating system's cache, because what was in it was gone when it was
    /// looked for and it served fewer reads than the device: where memory is short. None with
    /// `Builder::direct_reads`, which sends all around it.
    pub around_requests: u64,
    /// Blocks found neither in the cache nor there.
    pub cache_misses: u64,
    /// Lookups of single keys: `get`, `contains_key`, `size_of`, what conditional commits look up, and each
    /// key of a `multi_get` once.
    pub gets: u64,
    /// Of these, how many asked the settled run: nothing newer said anything of their key, or all were to be asked
    /// at once ([`crate::ReadOptions::at_once`]).
    pub settled_gets: u64,
    /// Read requests to the disk that these lookups made, for blocks, separated values, and indexes of paged
    /// tables: nobody else's, as those of walks, merges and sweeps. What `get_reader` reads of a value is not in it.
    /// The four kinds below are all of them.
    pub get_requests: u64,
    /// Those that a block of settled data answered: with the value, or where none was asked for (`contains_key`,
    /// `size_of`). [`GetStats::requests_per_get`] is 1 where nothing is cached.
    pub block_gets: GetStats,
    /// Those that settled data answered with a value kept apart, which was read: 2 where nothing is cached.
    pub apart_gets: GetStats,
    /// Those that were answered by what is not settled: memtables and runs, also by that the key is removed.
    pub unsettled_gets: GetStats,
    /// Those that found nothing, or failed.
    pub missed_gets: GetStats,
    /// Read requests to the disk for data blocks, and for indexes of paged tables: all of them.
    pub read_requests: u64,
    /// Bytes they asked for.
    pub read_bytes: u64,
    /// Read requests to the disk for separated values.
    pub value_requests: u64,
    /// Bytes they asked for.
    pub value_read_bytes: u64,
    /// Separated values read where the operating system holds them (`Builder::mapped_reads`).
    pub mapped_values: u64,
    /// Lookups whose index named blocks that do not hold the key's place.
    pub index_fallbacks: u64,
    /// Lookups whose index named blocks of more than 64 KiB together: these were read one by one, in halves.
    /// Tables written by this version have no such index; see [`KeyspaceStats::separated_blocks`].
    pub wide_bounds: u64,
    /// Tables whose index was rebuilt from their blocks.
    pub rebuilt_indexes: u64,
    /// Tables of all keyspaces whose index is not with them, because metadata would take more than
    /// half of the memory budget. Each needs one request more where neither cache nor others have
    /// its index.
    pub paged_tables: u64,
    /// Bytes of these tables' index sections.
    pub paged_index_bytes: u64,
    /// Indexes read for them; these reads are among `read_requests`.
    pub index_loads: u64,
    /// Lookups of a table that its filter ended, or one over several runs: no index was asked, and
    /// no block was read.
    pub filter_stops: u64,
    /// Lookups of a table that its filter let pass, though the key is not there.
    pub filter_false_positives: u64,
    /// Filters that came into memory because misses paid for that: they were at rest, or made anew.
    pub attached_filters: u64,
    /// Filters that could not be read and are done without.
    pub dropped_filters: u64,
    /// Bytes of keys and values put, with the few that say which operation it is and how long they are.
    pub put_bytes: u64,
    /// Bytes a second that could be put for a short time: as fast as the last flushes were, of some seconds of work. 0
    /// before there was one.
    pub burst_bytes_per_s: u64,
    /// Bytes a second that could be put for ever, at most: as fast as merges, sweeps and compactions were of late, with
    /// the flushes beside them, or may be ([`crate::Builder::background_bytes_per_s`]). That is whole sweeps, and half a
    /// minute of such work at least; all since the open, the first puts included, while there was less. Where a keyspace has
    /// levels: as fast as such work wrote of late, at as many bytes written for one put as it took since the open. What writers
    /// themselves take of processors and device is not in it. 0 before there was such work.
    pub sustainable_bytes_per_s: u64,
    /// Bytes of the log's segments, with those that left it and are kept to be used again: two at most.
    pub log_bytes: u64,
    /// How often the log was synced: commits that wait for that at the same time share a sync.
    pub log_syncs: u64,
    /// Files of tables and value segments that are open now; see [`crate::Builder::max_open_files`].
    pub open_files: u64,
    /// Files of tables and value segments that are mapped into memory now, of all databases of this
    /// process together: at most a quarter of the maps it may have (`vm.max_map_count`).
    pub mapped_files: u64,
    /// Bytes held back on the disk for when it is full; little while it is.
    pub ballast_bytes: u64,
    /// The last operation's sequence number.
    pub last_sequence: u64,
    /// The last that is known to be durable.
    pub synced_sequence: u64,
    /// Memtables flushed.
    pub flushes: u64,
    /// Of these, how many were committed before the log was durable up to them: nothing else needed it.
    pub unlogged_flushes: u64,
    /// Bytes of tables that flushes wrote.
    pub flushed_bytes: u64,
    /// Bytes of tables and values that merges of runs wrote, with those that gave way to a sweep.
    pub merged_bytes: u64,
    /// Merges of runs that wrote what lives in the deadest value segments anew: cheaper there than a sweep.
    pub rewrites: u64,
    /// Merges of all runs of a keyspace that reads had paid for ([`crate::KeyspaceOptions::settle_for_reads`]).
    pub merges_for_reads: u64,
    /// Sweeps that reached the end.
    pub sweeps: u64,
    /// Steps of sweeps that were committed.
    pub sweep_steps: u64,
    /// Of them those that were begun while the one before was under way, as they are where writers are held back.
    pub steps_ahead: u64,
    /// Bytes of tables that sweeps wrote.
    pub swept_bytes: u64,
    /// Tables of sweeps that were written over the file of one that had been replaced.
    pub recycled_tables: u64,
    /// Compactions of levels that wrote tables.
    pub compactions: u64,
    /// Bytes of tables and values that they wrote.
    pub compacted_bytes: u64,
    /// Tables that went down a level as they are: they overlapped nothing there.
    pub moved_tables: u64,
    /// Milliseconds in which at least one writer was kept back: background work owed too much
    /// space, too many runs, or too much fresh data, or memtables were full that waited to be
    /// flushed. A time in which several waited counts once; one that goes on counts when it ends.
    pub held_back_ms: u64,
}

/// Lookups by what answered them: blocks, values apart, what is not settled, nothing.
fn gets(engine: &Engine) -> [GetStats; 4] {
    let counts = engine.context.metrics.lookups.by_answer();
    counts.map(|count| GetStats { gets: count.lookups, requests: count.requests })
}

fn of_all(view: &View, engine: &Engine) -> Vec<KeyspaceStats> {
    view.keyspaces.values().map(|keyspace| KeyspaceStats::of(keyspace, engine)).collect()
}

/// Of value segments what sweeps have moved and snapshots keep.
fn held_up_bytes(view: &View) -> u64 {
    let segments = view.keyspaces.values().flat_map(|k| k.tables.segments.iter());
    segments.map(|segment| segment.held_up_bytes()).sum()
}

impl Stats {
    pub(crate) fn of(engine: &Engine) -> Stats {
        let (metrics, reads) = (&engine.metrics, &engine.context.metrics);
        let cache = &engine.context.cache;
        let view = engine.view();
        let keyspaces = of_all(&view, engine);
        let gets = gets(engine);
        let [block_gets, apart_gets, unsettled_gets, missed_gets] = gets;
        Stats {
            paged_tables: keyspaces.iter().map(|k| k.paged_tables).sum(),
            paged_index_bytes: keyspaces.iter().map(|k| k.paged_index_bytes).sum(),
            index_loads: reads.index_loads.load(Relaxed),
            keyspaces,
            memory_budget_bytes: engine.options.memory_budget_bytes,
            cache_bytes: cache.used_bytes(),
            cache_capacity_bytes: cache.capacity_bytes(),
            pinned_memory_bytes: engine.pinned_memory_bytes(),
            pinned_disk_bytes: reads.retired_bytes.load(Relaxed) + held_up_bytes(&view),
            unremoved_bytes: engine.unremoved_bytes(),
            spills: engine.metrics.spills.load(Relaxed),
            cache_hits: reads.cache_hits.sum(),
            mapped_reads: reads.mapped_reads.sum(),
            lost_mappings: reads.lost_mappings.load(Relaxed),
            around_requests: reads.around_requests.load(Relaxed),
            cache_misses: reads.cache_misses.load(Relaxed),
            gets: gets.iter().map(|kind| kind.gets).sum(),
            settled_gets: reads.lookups.settled(),
            get_requests: gets.iter().map(|kind| kind.requests).sum(),
            block_gets,
            apart_gets,
            unsettled_gets,
            missed_gets,
            read_requests: reads.requests.load(Relaxed),
            read_bytes: reads.bytes.load(Relaxed),
            value_requests: reads.value_requests.load(Relaxed),
            mapped_values: reads.mapped_values.sum() + reads.asked_values.sum(),
            value_read_bytes: reads.value_bytes.load(Relaxed),
            index_fallbacks: reads.fallbacks.load(Relaxed),
            wide_bounds: reads.wide_bounds.load(Relaxed),
            rebuilt_indexes: reads.rebuilt_indexes.load(Relaxed),
            filter_stops: reads.lookups.stops(),
            filter_false_positives: reads.filter_false_positives.load(Relaxed),
            attached_filters: reads.attached_filters.load(Relaxed),
            dropped_filters: reads.dropped_filters.load(Relaxed),
            put_bytes: metrics.put_bytes.load(Relaxed),
            burst_bytes_per_s: engine.burst(),
            sustainable_bytes_per_s: engine.sustainable(),
            log_bytes: engine.log.size_bytes(),
            log_syncs: engine.log.syncs(),
            open_files: engine.context.files.count() as u64,
            mapped_files: engine.context.maps.as_ref().map_or(0, |maps| maps.count()) as u64,
            ballast_bytes: engine.ballast.held_bytes(),
            last_sequence: engine.log.visible(),
            synced_sequence: engine.log.synced(),
            flushes: metrics.flushes.load(Relaxed),
            unlogged_flushes: metrics.unlogged_flushes.load(Relaxed),
            flushed_bytes: metrics.flushed_bytes.load(Relaxed),
            merged_bytes: metrics.merged_bytes.load(Relaxed),
            rewrites: metrics.rewrites.load(Relaxed),
            merges_for_reads: metrics.merges_for_reads.load(Relaxed),
            sweeps: metrics.sweeps.load(Relaxed),
            sweep_steps: metrics.sweep_steps.load(Relaxed),
            steps_ahead: metrics.steps_ahead.load(Relaxed),
            swept_bytes: metrics.swept_bytes.load(Relaxed),
            recycled_tables: metrics.recycled_tables.load(Relaxed),
            compactions: metrics.compactions.load(Relaxed),
            compacted_bytes: metrics.compacted_bytes.load(Relaxed),
            moved_tables: metrics.moved_tables.load(Relaxed),
            held_back_ms: metrics.held_back.total().as_millis() as u64,
        }
    }

    fn settling(&self) -> impl Iterator<Item = &KeyspaceStats> {
        self.keyspaces.iter().filter(|keyspace| keyspace.store != Store::Lsm)
    }

    /// What is taken of the memory budget, bytes: memtables, with those that readers alone keep, metadata and cache.
    pub fn memory_bytes(&self) -> u64 {
        let taken = self.keyspaces.iter().map(|k| k.memtable_bytes + k.metadata_bytes);
        taken.sum::<u64>() + self.pinned_memory_bytes + self.cache_bytes
    }

    /// The share of entries that are not settled yet, 0 to 1, of all keyspaces together but those of
    /// [`Store::Lsm`], which never settle; 0 if there are none. What is promised of cold reads does not hold of these.
    pub fn unsettled_share(&self) -> f64 {
        share(
            self.settling().map(|k| k.lsm_entries + k.memtable_entries).sum(),
            self.settling().map(|k| k.settled_entries).sum(),
        )
    }

    /// The same by what entries take, with the values kept apart that they point at.
    pub fn unsettled_share_of_bytes(&self) -> f64 {
        share(
            self.settling().map(|k| k.unsettled_bytes).sum(),
            self.settling().map(|k| k.settled_bytes + k.settled_value_bytes).sum(),
        )
    }

    /// Bytes written to tables and log per byte put; 0 if nothing was put.
    pub fn write_amplification(&self) -> f64 {
        if self.put_bytes == 0 {
            return 0.0;
        }
        let rewritten = self.merged_bytes + self.swept_bytes + self.compacted_bytes;
        let tables = self.flushed_bytes + rewritten;
        (tables + self.put_bytes) as f64 / self.put_bytes as f64
    }
}
