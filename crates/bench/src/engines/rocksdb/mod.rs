//! RocksDB, and RocksDB with its integrated BlobDB, through the C API of a shared library.
//!
//! The library is loaded when a database is opened, from the path in [`LIBRARY_VARIABLE`]: nothing
//! of RocksDB is built. The Maven package `org.rocksdb:rocksdbjni` carries one for Linux that
//! exports the whole C API; [`HOW_TO_GET_IT`] says how to get at it.
//!
//! *Tuned* by its wiki's "Setup Options and Basic Tuning" in part: Bloom filters of 10 bits over whole
//! keys, `format_version` 6, a HyperClock cache (with automatic entry charge) of the memory budget
//! less two memtables, background jobs as many as cores and three at least, `bytes_per_sync` of 1 MiB. **In
//! three things not**: that page has blocks of 16 KiB, here they are as the comparison asks for all
//! engines (4 KiB, RocksDB's default, unless it says otherwise); and it has
//! `cache_index_and_filter_blocks` and `pin_l0_filter_and_index_blocks_in_cache`, here index and
//! filter blocks are outside the cache (its default: fastest, and not counted in the budget).
//! `cache_index_and_filter_blocks=true` puts them in, `filter_bits=0` does without filters. BlobDB:
//! values from 512 bytes on in blob files, blob garbage collection on with its defaults, and blobs
//! in the same cache. A range that ends somewhere is told to its iterator (`iterate_upper_bound`).
//! Compression is off unless asked for; zstd has the level that is asked for, but in blob files,
//! which have no level of their own. Reads are calls (its default; its wiki advises against
//! `allow_mmap_reads`), also where mapped ones are asked for, or direct; `rocksdb-mapped`
//! has it map its tables. Which of the three it is [`Engine::version`] says, as the database's own
//! log does. Other options go to RocksDB as they are.
//!
//! `MultiGet` is one call (`rocksdb_batched_multi_get_cf`), which looks keys up block by block; its
//! reads are one after another (`async_io` is off by default, and the Maven library is built
//! without coroutines).
//!
//! *Durability*: its write-ahead log reaches the operating system at each write (its default);
//! synced is `WriteOptions::sync`, which groups the commits of several writers, and log files are
//! then used again (`recycle_log_file_num`), as its wiki's "WAL Performance" has it: such a sync
//! writes no metadata. The first logs are new all the same: the suite `durable` fills some before
//! it measures.
//!
//! *Compacted* is `CompactRange` of everything, bottommost level included (`kForceOptimized`). What garbage
//! of blobs that collects its own defaults say (the oldest quarter of the files).
//!
//! `statistics=true` (an option of ours) has it count, which costs it some time: `stats` then tells how often
//! a block or blob was found in the cache. `verify_checksums=false` has it check no block that it reads: by default each time,
//! where learnedkv checks a block that is mapped once, and one read in 64 looks again.

mod ffi;

use std::path::PathBuf;

use ::learnedkv::Compression;

use super::{
    CacheCounts, Engine, EngineStats, OpenSettings, Reads, cache_bytes, memtable_bytes, synced,
};
use crate::{Error, Result};

/// The environment variable with the path of the shared library.
pub const LIBRARY_VARIABLE: &str = "LEARNEDKV_ROCKSDB";
/// What to do where it is missing.
pub const HOW_TO_GET_IT: &str = "mvn dependency:get -Dartifact=org.rocksdb:rocksdbjni:10.4.2:jar:linux64 \
    -Dtransitive=false && unzip ~/.m2/repository/org/rocksdb/rocksdbjni/10.4.2/rocksdbjni-10.4.2-linux64.jar \
    librocksdbjni-linux64.so && export LEARNEDKV_ROCKSDB=$PWD/librocksdbjni-linux64.so";

/// Its own default for a cache, where no budget is given, in bytes.
const DEFAULT_CACHE_BYTES: u64 = 32 << 20;
/// Background jobs that it has at least, however few cores there are.
const FEWEST_JOBS: usize = 3;
/// Its own default for blocks, in bytes.
const DEFAULT_BLOCK_BYTES: u64 = 4 << 10;
/// Log files that are kept to be used again, where writes are synced: those that two memtables leave.
const RECYCLED_LOGS: usize = 2;
/// The bytes of an ingested table, about.
const INGEST_TABLE_BYTES: usize = 64 << 20;

/// An open database.
struct RocksDb {
    db: ffi::Db,
    dir: PathBuf,
}

/// Opens it with values beside their keys.
///
/// # Errors
/// If there is no library, and RocksDB's own.
pub fn open(settings: &OpenSettings) -> Result<Box<dyn Engine>> {
    open_as(settings, "")
}

/// What puts long values into blob files, and collects what is dead there.
const BLOBS: &str = "enable_blob_files=true;min_blob_size=512;enable_blob_garbage_collection=true;";

/// Opens it with long values in blob files.
///
/// # Errors
/// If there is no library, and RocksDB's own.
pub fn open_blob(settings: &OpenSettings) -> Result<Box<dyn Engine>> {
    open_as(settings, BLOBS)
}

/// Opens it so that it reads its tables in maps.
///
/// # Errors
/// If there is no library, other reads are asked for, and RocksDB's own.
pub fn open_mapped(settings: &OpenSettings) -> Result<Box<dyn Engine>> {
    if settings.reads != Reads::Mapped {
        return Err(Error::usage(
            "rocksdb-mapped reads its tables in maps: expected --reads mapped",
        ));
    }
    open_as(settings, "allow_mmap_reads=true;")
}

/// How a database is opened.
#[derive(Debug, Clone)]
struct Settings {
    /// Options of the database and its column family, as RocksDB writes them: `name=value;...`.
    options: String,
    /// The cache of blocks and blobs, in bytes.
    cache_bytes: usize,
    /// The aim for data blocks, in bytes.
    block_bytes: usize,
    /// Whether index and filter blocks live in the cache.
    metadata_in_cache: bool,
    /// Whether each block that is read is checked.
    verifies: bool,
    /// Whether blobs live in the cache too.
    blobs_in_cache: bool,
    /// Bits a key of the Bloom filters; 0: none.
    filter_bits: f64,
    /// Version of the tables' format.
    format_version: i32,
    /// Whether a write is synced before it returns.
    synced: bool,
}

/// The library that the environment names.
///
/// # Errors
/// If it names none.
pub fn library() -> Result<PathBuf> {
    let path = std::env::var_os(LIBRARY_VARIABLE).map(PathBuf::from).ok_or_else(|| {
        Error::usage(format!(
            "{LIBRARY_VARIABLE}: expected the path of a shared library with RocksDB's C API, found \
             nothing; one way to get it: {HOW_TO_GET_IT}"
        ))
    })?;
    if path.is_file() {
        return Ok(path);
    }
    Err(Error::usage(format!(
        "{LIBRARY_VARIABLE}: there is no file {}; one way to get it: {HOW_TO_GET_IT}",
        path.display()
    )))
}

fn open_as(settings: &OpenSettings, more: &str) -> Result<Box<dyn Engine>> {
    let synced = synced(settings, "rocksdb")?;
    let memtable = memtable_bytes(settings);
    let cache = settings
        .memory_budget_bytes
        .map_or(DEFAULT_CACHE_BYTES, |budget| cache_bytes(budget, memtable.unwrap_or_default()));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let compression = match settings.compression {
        None | Some(Compression::None) => "kNoCompression",
        Some(Compression::Lz4) => "kLZ4Compression",
        Some(Compression::Zstd { .. }) => "kZSTD",
        Some(other) => return Err(Error::usage(format!("rocksdb has no compression {other}"))),
    };
    let mut options = format!(
        "create_if_missing=true;compression={compression};max_background_jobs={};\
         bytes_per_sync=1048576;use_direct_reads={};",
        // As its documentation says, as many as there are cores; no fewer than ours has by default.
        cores.max(FEWEST_JOBS),
        settings.reads == Reads::Direct
    );
    if let Some(Compression::Zstd { level }) = settings.compression {
        options += &format!("compression_opts={{level={level}}};");
    }
    if let Some(bytes) = memtable {
        options += &format!("write_buffer_size={bytes};");
    }
    if synced {
        options += &format!("recycle_log_file_num={RECYCLED_LOGS};");
    }
    options += more;
    let blobs = more == BLOBS;
    if blobs {
        options += &format!("blob_compression_type={compression};");
    }
    let (mut metadata_in_cache, mut verifies, mut filter_bits) = (false, true, 10.0);
    for (name, value) in &settings.options {
        match name.as_str() {
            "cache_index_and_filter_blocks" => metadata_in_cache = yes_or_no(name, value)?,
            "verify_checksums" => verifies = yes_or_no(name, value)?,
            "statistics" => {
                if yes_or_no(name, value)? {
                    options += "statistics=BasicStatistics;";
                }
            }
            "filter_bits" => {
                filter_bits = value.parse().map_err(|_| {
                    Error::usage(format!("option filter_bits={value}: expected bits a key, or 0"))
                })?;
            }
            _ => options += &format!("{name}={value};"),
        }
    }
    std::fs::create_dir_all(&settings.dir)
        .map_err(|e| Error::io("create it", &settings.dir, &e))?;
    let settings_there = Settings {
        options,
        cache_bytes: cache as usize,
        block_bytes: settings.block_size_bytes.unwrap_or(DEFAULT_BLOCK_BYTES) as usize,
        metadata_in_cache,
        verifies,
        blobs_in_cache: blobs,
        filter_bits,
        format_version: 6,
        synced,
    };
    let db = ffi::Db::open(&library()?, &settings.dir, &settings_there)
        .map_err(|e| told("opening", e))?;
    Ok(Box::new(RocksDb { db, dir: settings.dir.clone() }))
}

fn yes_or_no(name: &str, value: &str) -> Result<bool> {
    let refused = || Error::usage(format!("option {name}={value}: expected true or false"));
    value.parse().map_err(|_| refused())
}

fn told(action: &str, error: String) -> Error {
    Error::engine(&format!("rocksdb: {action}"), error)
}

impl Engine for RocksDb {
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.db.put(key, value).map_err(|e| told("an insert", e))
    }

    fn write_many(&self, entries: &[(&[u8], Option<&[u8]>)]) -> Result<()> {
        self.db.write_many(entries).map_err(|e| told("a batch", e))
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.db.get(key, found).map_err(|e| told("a get", e))
    }

    fn multi_get(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        self.db.multi_get(keys, found).map_err(|e| told("a get of many", e))
    }

    fn remove(&self, key: &[u8]) -> Result<()> {
        self.db.delete(key).map_err(|e| told("a removal", e))
    }

    fn scan(&self, start: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.db.scan(start, None, visit).map_err(|e| told("a scan", e))
    }

    fn range(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.db.scan(from, Some(to), visit).map_err(|e| told("a scan", e))
    }

    fn ingest(&self, entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<()> {
        let mut tables = Vec::new();
        loop {
            let path = self.dir.join(format!("ingest-{}.sst", tables.len()));
            let any = self.db.write_table(&path, entries, INGEST_TABLE_BYTES);
            if !any.map_err(|e| told("an ingest", e))? {
                break;
            }
            tables.push(path);
        }
        if tables.is_empty() {
            return Ok(());
        }
        self.db.ingest(&tables).map_err(|e| told("an ingest", e))
    }

    fn flush(&self) -> Result<()> {
        self.db.flush().map_err(|e| told("a flush", e))
    }

    fn settle(&self) -> Result<()> {
        self.flush()?;
        self.db.wait_for_compact().map_err(|e| told("settling", e))
    }

    fn compact(&mut self) -> Result<()> {
        self.flush()?;
        self.db.compact();
        self.settle()
    }

    fn version(&self) -> String {
        // The C API has no version: the database's own log begins with it.
        let log = std::fs::read_to_string(self.dir.join("LOG")).unwrap_or_default();
        let version = logged(&log, "RocksDB version").unwrap_or("unknown");
        let library = library().map_or_else(|_| String::new(), |path| path.display().to_string());
        let is = |option: &str| logged(&log, option) == Some("1");
        let reads = if is("Options.use_direct_reads") {
            "direct"
        } else if is("Options.allow_mmap_reads") {
            "from maps"
        } else {
            "by calls"
        };
        format!("{version} ({library}), reads {reads}")
    }

    fn cache_counts(&self) -> Option<CacheCounts> {
        let counted = self.db.text("rocksdb.options-statistics")?;
        let sum =
            |names: [&str; 2]| names.into_iter().filter_map(|name| ticker(&counted, name)).sum();
        Some(CacheCounts {
            hits: sum(["rocksdb.block.cache.hit", "rocksdb.blobdb.cache.hit"]),
            misses: sum(["rocksdb.block.cache.miss", "rocksdb.blobdb.cache.miss"]),
        })
    }

    fn stats(&self) -> EngineStats {
        let properties = [
            ("entries", "rocksdb.estimate-num-keys"),
            ("cache_bytes", "rocksdb.block-cache-usage"),
            ("pinned_cache_bytes", "rocksdb.block-cache-pinned-usage"),
            ("memtable_bytes", "rocksdb.cur-size-all-mem-tables"),
            ("table_reader_bytes", "rocksdb.estimate-table-readers-mem"),
            ("table_bytes", "rocksdb.total-sst-files-size"),
            ("blob_bytes", "rocksdb.total-blob-file-size"),
            ("pending_compaction_bytes", "rocksdb.estimate-pending-compaction-bytes"),
        ];
        let mut figures: Vec<(String, f64)> = properties
            .iter()
            .filter_map(|(name, property)| {
                Some(((*name).to_string(), self.db.number(property)? as f64))
            })
            .collect();
        let tables = self.db.text("rocksdb.aggregated-table-properties").unwrap_or_default();
        let of = |name: &str| table_property(&tables, name);
        if let (Some(index), Some(filter), Some(entries)) =
            (of("index block size"), of("filter block size"), of("# entries"))
        {
            let bits = |bytes: f64| bytes * 8.0 / entries.max(1.0);
            figures.push(("metadata_bits_per_entry".to_string(), bits(index + filter)));
            figures.push(("filter_bits_per_key".to_string(), bits(filter)));
        }
        if let Some(counts) = self.cache_counts() {
            figures.push(("cache_hits".to_string(), counts.hits as f64));
            figures.push(("cache_misses".to_string(), counts.misses as f64));
        }
        let text = self.db.text("rocksdb.levelstats").unwrap_or_default();
        EngineStats { text, figures }
    }

    fn close(self: Box<Self>) -> Result<()> {
        // Dropping it closes it; the log has all that was acknowledged.
        drop(self);
        Ok(())
    }
}

/// The number behind `name` in `text` of the form `name=12; another (with words)=3; ...`.
fn table_property(text: &str, name: &str) -> Option<f64> {
    let property = text.split(';').find(|part| part.trim_start().starts_with(name))?;
    property.rsplit_once('=')?.1.trim().parse().ok()
}

/// What a database's log says of `name`: a line that ends in `name: value`.
fn logged<'a>(log: &'a str, name: &str) -> Option<&'a str> {
    let of = |line: &'a str| line.rsplit_once(name)?.1.strip_prefix(':');
    log.lines().find_map(of).map(str::trim)
}

/// The count of `name` in RocksDB's statistics: lines of `name COUNT : 12`.
fn ticker(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" COUNT :"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickers_are_read() {
        let text = "rocksdb.block.cache.miss COUNT : 7\nrocksdb.block.cache.hit COUNT : 12\n";
        assert_eq!(ticker(text, "rocksdb.block.cache.hit"), Some(12));
        assert_eq!(ticker(text, "rocksdb.block.cache"), None);
    }

    #[test]
    fn what_a_log_says_of_an_option_is_read() {
        let log = "2026/01/01-00:00:00.1 7 RocksDB version: 10.4.2\n\
                   2026/01/01-00:00:00.2 7    Options.allow_mmap_reads_more: 0\n\
                   2026/01/01-00:00:00.2 7          Options.allow_mmap_reads: 1\n";
        assert_eq!(logged(log, "RocksDB version"), Some("10.4.2"));
        assert_eq!(logged(log, "Options.allow_mmap_reads"), Some("1"));
        assert_eq!(logged(log, "Options.allow"), None);
    }

    #[test]
    fn table_properties_are_read() {
        let text = "# data blocks=7; # entries=32; raw key size=1; index block size (user-key? 1, \
                    delta-value? 1)=44; filter block size=0; ";
        assert_eq!(table_property(text, "# entries"), Some(32.0));
        assert_eq!(table_property(text, "index block size"), Some(44.0));
        assert_eq!(table_property(text, "nothing"), None);
    }
}
