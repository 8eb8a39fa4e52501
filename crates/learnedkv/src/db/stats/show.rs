//! Statistics as people read them.

use std::fmt;

use super::{KeyspaceStats, Stats};

const MIB: f64 = (1 << 20) as f64;

impl fmt::Display for KeyspaceStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "keyspace {:?}", self.name)?;
        writeln!(f, "  memtables      {:>12.1} MiB", self.memtable_bytes as f64 / MIB)?;
        writeln!(
            f,
            "  LSM part       {:>12.1} MiB  {} runs, {} entries",
            self.lsm_bytes as f64 / MIB,
            self.runs,
            self.lsm_entries
        )?;
        for level in &self.levels {
            writeln!(
                f,
                "    level {}      {:>12.1} MiB  of {:.1}; {} tables, {} %",
                level.level,
                level.bytes as f64 / MIB,
                level.target_bytes as f64 / MIB,
                level.tables,
                level.score_percent
            )?;
        }
        writeln!(
            f,
            "  settled run    {:>12.1} MiB  {} partitions ({} with a delta), {} entries ({:.1} %)",
            self.settled_bytes as f64 / MIB,
            self.partitions,
            self.deltas,
            self.settled_entries,
            self.settled_share() * 100.0
        )?;
        if self.value_segments > 0 {
            writeln!(
                f,
                "  value segments {:>12.1} MiB  {} segments, {:.1} MiB pointed at",
                self.value_bytes as f64 / MIB,
                self.value_segments,
                self.value_live_bytes as f64 / MIB
            )?;
        }
        if let Some(watermark) = &self.watermark {
            writeln!(f, "  being swept    up to key \"{}\"", watermark.escape_ascii())?;
        }
        writeln!(
            f,
            "  blocks         {:>12.1} MiB  {:.1} MiB uncompressed ({:.2} times)",
            self.block_bytes as f64 / MIB,
            self.unpacked_block_bytes as f64 / MIB,
            self.compression_ratio()
        )?;
        self.show_metadata(f)
    }
}

impl KeyspaceStats {
    fn show_metadata(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.damaged_tables > 0 {
            writeln!(
                f,
                "  damaged        {:>12}      tables: their keys cannot be read",
                self.damaged_tables
            )?;
        }
        writeln!(
            f,
            "  metadata       {:>12.3} MiB  {:.2} bits per entry, {} blocks",
            self.metadata_bytes as f64 / MIB,
            self.metadata_bits_per_entry(),
            self.blocks
        )?;
        if self.separated_blocks > 0 {
            writeln!(
                f,
                "  not modelled   {:>12}      blocks: their separators are in the index",
                self.separated_blocks
            )?;
        }
        if self.generations > 0 {
            writeln!(
                f,
                "  over runs      {:>12.3} MiB  filters, {} in all",
                self.generation_bytes as f64 / MIB,
                self.generations
            )?;
        }
        if self.paged_tables > 0 {
            writeln!(
                f,
                "  not in memory  {:>12.3} MiB  indexes of {} tables, read when needed",
                self.paged_index_bytes as f64 / MIB,
                self.paged_tables
            )?;
        }
        writeln!(
            f,
            "  of it filters  {:>12.3} MiB  {:.2} bits per key, {} tables, {} at rest",
            self.filter_bytes as f64 / MIB,
            self.filter_bits_per_key(),
            self.filters,
            self.resting_filters
        )
    }
}

impl Stats {
    fn show_reads(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "cache            {:>12.1} MiB  of {:.1}; {} hits, {} mapped reads, {} misses",
            self.cache_bytes as f64 / MIB,
            self.cache_capacity_bytes as f64 / MIB,
            self.cache_hits,
            self.mapped_reads,
            self.cache_misses
        )?;
        writeln!(
            f,
            "gets             {:>12}      lookups of keys, {} of settled data; {} requests for them",
            self.gets, self.settled_gets, self.get_requests
        )?;
        writeln!(
            f,
            "reads            {:>12}      requests, {:.1} MiB; {} for values, {:.1} MiB; \
             {} fallbacks, {} wide bounds, {} indexes rebuilt",
            self.read_requests,
            self.read_bytes as f64 / MIB,
            self.value_requests,
            self.value_read_bytes as f64 / MIB,
            self.index_fallbacks,
            self.wide_bounds,
            self.rebuilt_indexes
        )?;
        self.show_metadata(f)
    }

    fn show_writes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "rates            {:>12.1} MiB  a second in a burst, {:.1} for ever at most, as flushes and settling went so far",
            self.burst_bytes_per_s as f64 / MIB,
            self.sustainable_bytes_per_s as f64 / MIB
        )?;
        writeln!(
            f,
            "writes           {:>12.1} MiB  put; {:.1} flushed ({} flushes), {:.1} merged ({} rewrites), {:.1} swept \
             ({} sweeps, {} steps), {:.1} compacted ({} compactions, {} tables moved); {:.2} bytes per byte; \
             writers held back {} ms",
            self.put_bytes as f64 / MIB,
            self.flushed_bytes as f64 / MIB,
            self.flushes,
            self.merged_bytes as f64 / MIB,
            self.rewrites,
            self.swept_bytes as f64 / MIB,
            self.sweeps,
            self.sweep_steps,
            self.compacted_bytes as f64 / MIB,
            self.compactions,
            self.moved_tables,
            self.write_amplification(),
            self.held_back_ms
        )?;
        writeln!(
            f,
            "log              {:>12.1} MiB  {} operations, durable up to {}; {:.1} MiB of disk held back; {} files of data open, {} mapped",
            self.log_bytes as f64 / MIB,
            self.last_sequence,
            self.synced_sequence,
            self.ballast_bytes as f64 / MIB,
            self.open_files,
            self.mapped_files
        )
    }
}

impl Stats {
    fn show_metadata(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "paged indexes    {:>12}      loads; {} tables, {:.3} MiB",
            self.index_loads,
            self.paged_tables,
            self.paged_index_bytes as f64 / MIB
        )?;
        writeln!(
            f,
            "filters          {:>12}      lookups stopped, {} false positives; {} filters attached, {} dropped",
            self.filter_stops,
            self.filter_false_positives,
            self.attached_filters,
            self.dropped_filters
        )
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for keyspace in &self.keyspaces {
            write!(f, "{keyspace}")?;
        }
        writeln!(
            f,
            "snapshots        {:>12.1} MiB  of memtables, {:.1} MiB of files kept for them alone; {} spills",
            self.pinned_memory_bytes as f64 / MIB,
            self.pinned_disk_bytes as f64 / MIB,
            self.spills
        )?;
        self.show_reads(f)?;
        self.show_writes(f)
    }
}
