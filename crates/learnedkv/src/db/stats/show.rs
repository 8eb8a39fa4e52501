//! Statistics as people read them.

use std::fmt;

use super::{KeyspaceStats, Stats};

const MIB: f64 = (1 << 20) as f64;

impl fmt::Display for KeyspaceStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "keyspace {:?} ({})", self.name, self.store.name())?;
        writeln!(
            f,
            "  memtables      {:>12.1} MiB  {} entries",
            self.memtable_bytes as f64 / MIB,
            self.memtable_entries
        )?;
        if self.streamed_bytes > 0 {
            writeln!(
                f,
                "  streamed       {:>12.1} MiB  of values that are not flushed",
                self.streamed_bytes as f64 / MIB
            )?;
        }
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
        self.show_settled(f)?;
        if self.value_segments > 0 {
            writeln!(
                f,
                "  value segments {:>12.1} MiB  {} segments, {:.1} MiB pointed at, values of {:.1} MiB",
                self.value_bytes as f64 / MIB,
                self.value_segments,
                self.value_live_bytes as f64 / MIB,
                self.unpacked_value_bytes as f64 / MIB
            )?;
        }
        self.show_space(f)?;
        if let Some(watermark) = &self.watermark {
            writeln!(f, "  being swept    up to key \"{}\"", watermark.escape_ascii())?;
        }
        writeln!(
            f,
            "  blocks         {:>12.1} MiB  {:.1} MiB uncompressed ({:.2} times), {:.1} MiB of keys and values",
            self.block_bytes as f64 / MIB,
            self.unpacked_block_bytes as f64 / MIB,
            self.compression_ratio(),
            self.entry_bytes as f64 / MIB
        )?;
        if self.removed_ranges > 0 {
            writeln!(
                f,
                "  removed ranges {:>12}      until they are settled",
                self.removed_ranges
            )?;
        }
        self.show_metadata(f)
    }
}

impl KeyspaceStats {
    fn show_settled(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  settled run    {:>12.1} MiB  {} partitions ({} with a delta), {} entries, {:.1} MiB of values apart",
            self.settled_bytes as f64 / MIB,
            self.partitions,
            self.deltas,
            self.settled_entries,
            self.settled_value_bytes as f64 / MIB
        )?;
        writeln!(
            f,
            "  not settled    {:>12.1} MiB  with its values; settled are {:.1} % of the entries, {:.1} % of the bytes",
            self.unsettled_bytes as f64 / MIB,
            self.settled_share() * 100.0,
            self.settled_share_of_bytes() * 100.0
        )
    }

    fn show_space(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  space          {:>12.1} MiB  ", self.space_bytes as f64 / MIB)?;
        if self.garbage_allowed_bytes > 0 {
            write!(
                f,
                "{:.1} live, about; {:.1} of garbage may lie; ",
                self.live_bytes as f64 / MIB,
                self.garbage_allowed_bytes as f64 / MIB
            )?;
        }
        writeln!(f, "writers pay {} of 1000", self.pressure_permille)?;
        if self.unsettled_requests > 0 && self.settling_price_requests > 0 {
            writeln!(
                f,
                "  unsettled      {:>12}      requests more than if all were settled; a sweep is due at {}",
                self.unsettled_requests, self.settling_price_requests
            )?;
        }
        if self.unmerged_requests > 0 && self.merging_price_requests > 0 {
            writeln!(
                f,
                "  unmerged       {:>12}      of them more than if all runs were one; a merge is due at {}, or left to the sweep",
                self.unmerged_requests, self.merging_price_requests
            )?;
        }
        Ok(())
    }

    fn show_metadata(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.damaged_tables > 0 {
            writeln!(
                f,
                "  damaged        {:>12}      tables: their keys cannot be read",
                self.damaged_tables
            )?;
        }
        if self.damaged_segments > 0 {
            writeln!(
                f,
                "  damaged        {:>12}      value segments: what lies in them cannot be read",
                self.damaged_segments
            )?;
        }
        writeln!(
            f,
            "  metadata       {:>12.3} MiB  {:.2} bits per entry, {} blocks; indexes on disk {:.3} MiB",
            self.metadata_bytes as f64 / MIB,
            self.metadata_bits_per_entry(),
            self.blocks,
            self.index_bytes as f64 / MIB
        )?;
        if self.index_chunks > 0 {
            writeln!(
                f,
                "  of indexes     {:>12}      chunks; {} blocks found by separators in full, {} exceptions",
                self.index_chunks, self.separated_blocks, self.separator_exceptions
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
            "  of it filters  {:>12.3} MiB  {:.2} bits per key, {} tables with {} entries, {} at rest ({} for want of room); on disk {:.3} MiB",
            self.filter_bytes as f64 / MIB,
            self.filter_bits_per_key(),
            self.filters,
            self.filtered_entries,
            self.resting_filters,
            self.filters_without_room,
            self.filter_file_bytes as f64 / MIB
        )
    }
}

impl Stats {
    fn show_reads(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "memory           {:>12.1} MiB  of a budget of {:.1}: memtables, metadata, cache",
            self.memory_bytes() as f64 / MIB,
            self.memory_budget_bytes as f64 / MIB
        )?;
        writeln!(
            f,
            "cache            {:>12.1} MiB  of {:.1}; {} hits, {} mapped reads ({} lost), {} misses",
            self.cache_bytes as f64 / MIB,
            self.cache_capacity_bytes as f64 / MIB,
            self.cache_hits,
            self.mapped_reads,
            self.lost_mappings,
            self.cache_misses
        )?;
        writeln!(
            f,
            "gets             {:>12}      lookups of keys, {} of settled data; {} requests for them",
            self.gets, self.settled_gets, self.get_requests
        )?;
        for (name, of) in [
            ("in blocks", self.block_gets),
            ("values apart", self.apart_gets),
            ("not settled", self.unsettled_gets),
            ("found nothing", self.missed_gets),
        ] {
            writeln!(
                f,
                "  {name:<15}{:>12}      of them, {:.2} requests each, {} in all",
                of.gets,
                of.requests_per_get(),
                of.requests
            )?;
        }
        writeln!(
            f,
            "reads            {:>12}      requests, {:.1} MiB; {} for values, {:.1} MiB, and {} values mapped; \
             {} around the system's cache; {} fallbacks, {} wide bounds, {} indexes rebuilt",
            self.read_requests,
            self.read_bytes as f64 / MIB,
            self.value_requests,
            self.value_read_bytes as f64 / MIB,
            self.mapped_values,
            self.around_requests,
            self.index_fallbacks,
            self.wide_bounds,
            self.rebuilt_indexes
        )?;
        self.show_metadata(f)
    }

    fn show_writes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "rates            {:>12.1} MiB  a second in a burst, {:.1} for ever at most, as flushes and settling went of late",
            self.burst_bytes_per_s as f64 / MIB,
            self.sustainable_bytes_per_s as f64 / MIB
        )?;
        writeln!(
            f,
            "writes           {:>12.1} MiB  put; {:.1} flushed ({} flushes, {} before the log), {:.1} merged ({} rewrites, {} for reads), {:.1} swept \
             ({} sweeps, {} steps, {} begun ahead, {} tables over replaced ones), {:.1} compacted ({} compactions, {} tables moved); {:.2} bytes per byte; \
             writers held back {} ms",
            self.put_bytes as f64 / MIB,
            self.flushed_bytes as f64 / MIB,
            self.flushes,
            self.unlogged_flushes,
            self.merged_bytes as f64 / MIB,
            self.rewrites,
            self.merges_for_reads,
            self.swept_bytes as f64 / MIB,
            self.sweeps,
            self.sweep_steps,
            self.steps_ahead,
            self.recycled_tables,
            self.compacted_bytes as f64 / MIB,
            self.compactions,
            self.moved_tables,
            self.write_amplification(),
            self.held_back_ms
        )?;
        writeln!(
            f,
            "log              {:>12.1} MiB  {} operations, durable up to {}, {} syncs; {:.1} MiB of disk held back, \
             {:.1} MiB to be removed; {} files of data open, {} mapped",
            self.log_bytes as f64 / MIB,
            self.last_sequence,
            self.synced_sequence,
            self.log_syncs,
            self.ballast_bytes as f64 / MIB,
            self.unremoved_bytes as f64 / MIB,
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
        writeln!(
            f,
            "not settled      {:>12.1} %    of the entries, {:.1} % of the bytes, where data is settled",
            self.unsettled_share() * 100.0,
            self.unsettled_share_of_bytes() * 100.0
        )?;
        self.show_reads(f)?;
        self.show_writes(f)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{GetStats, LevelStats};
    use super::*;
    use crate::options::Store;

    /// Numbers that are told apart in the text, of bytes by their MiB; every one is another.
    #[derive(Debug, Default)]
    struct Numbers {
        counts: u64,
        bytes: u64,
    }

    impl Numbers {
        fn count(&mut self) -> u64 {
            self.counts += 1;
            70_000 + self.counts
        }

        fn bytes(&mut self) -> u64 {
            self.bytes += 1;
            (40_000 + self.bytes) << 20
        }
    }

    fn level(n: &mut Numbers) -> LevelStats {
        LevelStats {
            level: n.count(),
            tables: n.count(),
            bytes: n.bytes(),
            target_bytes: n.bytes(),
            score_percent: n.count(),
        }
    }

    fn gets(n: &mut Numbers) -> GetStats {
        GetStats { gets: n.count(), requests: n.count() }
    }

    /// Every field is named: who adds one has to say here what it is, and finds that it is to be
    /// shown.
    fn keyspace(n: &mut Numbers) -> KeyspaceStats {
        KeyspaceStats {
            name: "people".to_string(),
            store: Store::Lsm,
            levels: vec![level(n)],
            memtable_bytes: n.bytes(),
            memtable_entries: n.count(),
            streamed_bytes: n.bytes(),
            unsettled_bytes: n.bytes(),
            runs: n.count(),
            lsm_entries: n.count(),
            lsm_bytes: n.bytes(),
            partitions: n.count(),
            deltas: n.count(),
            watermark: Some(b"smith".to_vec()),
            settled_entries: n.count(),
            settled_bytes: n.bytes(),
            settled_value_bytes: n.bytes(),
            value_segments: n.count(),
            value_bytes: n.bytes(),
            value_live_bytes: n.bytes(),
            unpacked_value_bytes: n.bytes(),
            metadata_bytes: n.bytes(),
            filters: n.count(),
            resting_filters: n.count(),
            filters_without_room: n.count(),
            filter_file_bytes: n.bytes(),
            filter_bytes: n.bytes(),
            generations: n.count(),
            generation_bytes: n.bytes(),
            filtered_entries: n.count(),
            index_bytes: n.bytes(),
            paged_tables: n.count(),
            paged_index_bytes: n.bytes(),
            blocks: n.count(),
            separated_blocks: n.count(),
            index_chunks: n.count(),
            separator_exceptions: n.count(),
            block_bytes: n.bytes(),
            unpacked_block_bytes: n.bytes(),
            entry_bytes: n.bytes(),
            space_bytes: n.bytes(),
            live_bytes: n.bytes(),
            garbage_allowed_bytes: n.bytes(),
            unsettled_requests: n.count(),
            settling_price_requests: n.count(),
            unmerged_requests: n.count(),
            merging_price_requests: n.count(),
            pressure_permille: n.count(),
            removed_ranges: n.count(),
            damaged_tables: n.count(),
            damaged_segments: n.count(),
        }
    }

    fn stats(n: &mut Numbers) -> Stats {
        Stats {
            keyspaces: vec![keyspace(n)],
            memory_budget_bytes: n.bytes(),
            pinned_memory_bytes: n.bytes(),
            pinned_disk_bytes: n.bytes(),
            unremoved_bytes: n.bytes(),
            spills: n.count(),
            cache_bytes: n.bytes(),
            cache_capacity_bytes: n.bytes(),
            cache_hits: n.count(),
            mapped_reads: n.count(),
            lost_mappings: n.count(),
            around_requests: n.count(),
            cache_misses: n.count(),
            gets: n.count(),
            settled_gets: n.count(),
            get_requests: n.count(),
            block_gets: gets(n),
            apart_gets: gets(n),
            unsettled_gets: gets(n),
            missed_gets: gets(n),
            read_requests: n.count(),
            read_bytes: n.bytes(),
            value_requests: n.count(),
            mapped_values: n.count(),
            value_read_bytes: n.bytes(),
            index_fallbacks: n.count(),
            wide_bounds: n.count(),
            rebuilt_indexes: n.count(),
            paged_tables: n.count(),
            paged_index_bytes: n.bytes(),
            index_loads: n.count(),
            filter_stops: n.count(),
            filter_false_positives: n.count(),
            attached_filters: n.count(),
            dropped_filters: n.count(),
            put_bytes: n.bytes(),
            burst_bytes_per_s: n.bytes(),
            sustainable_bytes_per_s: n.bytes(),
            log_bytes: n.bytes(),
            log_syncs: n.count(),
            open_files: n.count(),
            mapped_files: n.count(),
            ballast_bytes: n.bytes(),
            last_sequence: n.count(),
            synced_sequence: n.count(),
            flushes: n.count(),
            unlogged_flushes: n.count(),
            flushed_bytes: n.bytes(),
            merged_bytes: n.bytes(),
            rewrites: n.count(),
            merges_for_reads: n.count(),
            sweeps: n.count(),
            sweep_steps: n.count(),
            steps_ahead: n.count(),
            swept_bytes: n.bytes(),
            recycled_tables: n.count(),
            compactions: n.count(),
            compacted_bytes: n.bytes(),
            moved_tables: n.count(),
            held_back_ms: n.count(),
        }
    }

    #[test]
    fn every_number_of_the_statistics_is_in_their_text() {
        let stats = stats(&mut Numbers::default());
        let text = stats.to_string();
        let shown: Vec<&str> = text.split(|c: char| !c.is_ascii_digit() && c != '.').collect();
        let fields = format!("{stats:#?}");
        let mut numbers = 0;
        for line in fields.lines() {
            let Some((field, number)) = line.trim().trim_end_matches(',').split_once(": ") else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else { continue };
            numbers += 1;
            // Bytes are shown as MiB: "12.0".
            let wanted = if number < 1 << 20 { number } else { number >> 20 };
            let is_it = |word: &&str| {
                word.split('.').next().and_then(|whole| whole.parse().ok()) == Some(wanted)
            };
            assert!(shown.iter().any(is_it), "{field} is not in the text:\n{text}");
        }
        assert!(numbers > 80, "{numbers} numbers in {fields}");
        for words in ["\"people\" (lsm)", "up to key \"smith\""] {
            assert!(text.contains(words), "{words} is not in {text}");
        }
    }
}
