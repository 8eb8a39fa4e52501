//! A case of a suite: one store that is filled and worked on, and how each engine has it.

use std::path::{Path, PathBuf};

use crate::engines::{Reads, known};
use crate::sizes::parse_bytes;
use crate::{Error, Result};

/// Cases that belong together.
#[derive(Debug, Clone, Copy)]
pub struct Suite {
    /// On the command line.
    pub name: &'static str,
    /// What it asks, in a few words.
    pub about: &'static str,
    /// What is run, in order, each on a store of its own.
    pub cases: &'static [Case],
}

/// One store that is filled and worked on.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// In reports.
    pub name: &'static str,
    /// The kind of keys, as `--keys` has it, without the count or the file.
    pub keys: &'static str,
    /// The file they come from, in the directory of data; empty where they are made.
    pub file: &'static str,
    /// How many keys; of a file at most so many.
    pub count: u64,
    /// As `--value-size` has it.
    pub value_size: &'static str,
    /// Client threads.
    pub threads: u64,
    /// As `--requests` has it.
    pub requests: &'static str,
    /// As `--workloads` has it.
    pub workloads: &'static str,
    /// Operations of each mix, but for those of which a part is asked for (`E/20`) or a multiple (`C*10`).
    pub operations: u64,
    /// Seconds after which a mix stops that is not through: for safety, and said where it happens. A multiple
    /// of them for a multiple of the operations.
    pub seconds: u64,
    /// Memtables and cache of each engine together, in bytes.
    pub memory_budget_bytes: u64,
    /// A memtable, in bytes.
    pub memtable_bytes: u64,
    /// As `--durability` has it.
    pub durability: &'static str,
    /// As `--reads` has it; engines that cannot read so are left out.
    pub reads: &'static str,
    /// The most a block holds, in bytes, of engines whose blocks can be told.
    pub block_bytes: u64,
    /// As `--compression` has it; engines that cannot compress so do not.
    pub compression: &'static str,
    /// The share of values' bytes that compress.
    pub compressible: &'static str,
    /// As `--settle` has it.
    pub settle: &'static str,
    /// All memory of the process and of its files' cached pages, in bytes; 0 is no limit.
    pub limit_bytes: u64,
    /// Options of engines, by the engine and as `NAME=VALUE`: see [`Case::for_engine`].
    pub options: &'static [(&'static str, &'static str)],
    /// Whether it asks how much garbage is let lie: engines that collect none are left out.
    pub collects: bool,
}

const MIB: u64 = 1 << 20;

impl Case {
    /// The same case so small that it shows only that it works.
    #[must_use]
    pub fn tiny(self) -> Case {
        let value_bytes: u64 = self.value_size.parse().unwrap_or(128);
        let synced = self.durability == "synced";
        Case {
            count: (2 * MIB / value_bytes.max(1)).clamp(50, 2_000),
            operations: if synced { 40 } else { 400 },
            memory_budget_bytes: 16 * MIB,
            memtable_bytes: MIB,
            limit_bytes: 0,
            ..self
        }
    }

    /// Bytes of its values, and of keys of 8 B; of values of several lengths none are counted.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.count * (parse_bytes(self.value_size).unwrap_or(0) + 8)
    }

    /// Bytes of its keys and values where reads of them go to the device: nothing where they fit in what memory there is.
    #[must_use]
    pub fn bytes_beyond_memory(&self) -> Option<u64> {
        parse_bytes(self.value_size).ok()?;
        let bytes = self.data_bytes();
        let is_beyond = self.limit_bytes > 0 && bytes > self.limit_bytes;
        (is_beyond || self.reads == "direct").then_some(bytes)
    }

    /// The file of its keys below `data`, where they come from one.
    #[must_use]
    pub fn file_in(&self, data: &Path) -> Option<PathBuf> {
        (!self.file.is_empty()).then(|| data.join(self.file))
    }

    /// Why nobody can run it here, if so.
    #[must_use]
    pub fn missing(&self, data: &Path) -> Option<String> {
        let path = self.file_in(data).filter(|path| !path.is_file())?;
        Some(format!(
            "{}: skipped: there is no file {}; --data names the directory with it",
            self.name,
            path.display()
        ))
    }

    /// Why `engine` is left out of it, if so.
    #[must_use]
    pub fn leaves_out(&self, engine: &str) -> Option<String> {
        let known = known(engine)?;
        let why = if self.collects && !known.collects {
            "collects no garbage of values"
        } else if self.reads == "direct" && !known.direct {
            "cannot read around the operating system's cache"
        } else {
            return None;
        };
        Some(format!("{}: {engine} left out: it {why}", self.name))
    }

    /// The case as `engine` has it, and its options as `NAME=VALUE`: those of the case and then
    /// `more`. Two are ours: `reads` and `memtable` change the case for this engine alone.
    ///
    /// # Errors
    /// If one of ours makes no sense.
    pub fn for_engine(&self, engine: &str, more: &[String]) -> Result<(Case, Vec<String>)> {
        let (mut case, mut options) = (*self, Vec::new());
        let base = known(engine).map_or(engine, |known| known.base);
        let of_case = self.options.iter().filter(|(of, _)| *of == base);
        for option in of_case.map(|(_, option)| *option).chain(more.iter().map(String::as_str)) {
            let within = |e: Error| e.within(&format!("option {engine}:{option}"));
            match option.split_once('=') {
                Some(("reads", how)) => {
                    case.reads = how.parse::<Reads>().map_err(within)?.name();
                }
                Some(("memtable", size)) => {
                    case.memtable_bytes = parse_bytes(size).map_err(within)?;
                }
                _ => options.push(option.to_string()),
            }
        }
        if self.lacks_compression(engine).is_some() {
            case.compression = "none";
        }
        Ok((case, options))
    }

    /// That `engine` cannot compress as the case asks, if so: it then does not.
    #[must_use]
    pub fn lacks_compression(&self, engine: &str) -> Option<String> {
        let how = self.compression.split(':').next().unwrap_or_default();
        let lacks = !known(engine)?.compressions.contains(&how);
        let words = format!("{}: {engine} has no compression {how}: it ran without", self.name);
        lacks.then_some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::super::suites::{PROVISION, SOSD, WARM};
    use super::*;

    #[test]
    fn an_engine_may_have_reads_and_memtables_of_its_own() {
        let case = Case { options: &[("baseline", "reads=direct"), ("baseline", "a=1")], ..WARM };
        let more = ["memtable=64KiB".to_string(), "b=2".to_string()];
        let (changed, options) = case.for_engine("baseline", &more).unwrap();
        assert_eq!((changed.reads, changed.memtable_bytes), ("direct", 64 << 10));
        assert_eq!(options, ["a=1", "b=2"]);
        let (changed, options) = case.for_engine("lmdb", &[]).unwrap();
        assert_eq!((changed.reads, options.len()), ("mapped", 0));
        let error = case.for_engine("lmdb", &["reads=hard".to_string()]).unwrap_err().to_string();
        assert!(error.starts_with("option lmdb:reads=hard: unknown way to read"), "{error}");
    }

    #[test]
    fn who_cannot_compress_runs_without_and_is_told() {
        let lz4 = Case { compression: "lz4", ..WARM };
        let zstd = Case { compression: "zstd:3", ..WARM };
        for (case, engine, has) in [
            (lz4, "learnedkv", true),
            (lz4, "fjall", true),
            (lz4, "lmdb", false),
            (zstd, "fjall", false),
            (zstd, "rocksdb", true),
        ] {
            let (run, _) = case.for_engine(engine, &[]).unwrap();
            assert_eq!(run.compression, if has { case.compression } else { "none" }, "{engine}");
            assert_eq!(case.lacks_compression(engine).is_none(), has, "{engine}");
        }
        assert_eq!(WARM.lacks_compression("lmdb"), None);
    }

    #[test]
    fn who_cannot_is_left_out_and_told_why() {
        let direct = Case { reads: "direct", ..WARM };
        assert!(direct.leaves_out("lmdb").unwrap().contains("lmdb left out: it cannot read"));
        assert_eq!(direct.leaves_out("rocksdb"), None);
        assert!(PROVISION.leaves_out("rocksdb").unwrap().contains("collects no garbage"));
        for collects in ["baseline", "learnedkv", "blobdb", "fjall-separated"] {
            assert_eq!(PROVISION.leaves_out(collects), None);
        }
        assert_eq!(WARM.missing(Path::new("/nonexistent")), None);
        let sosd = Case { file: "coast", ..SOSD };
        assert!(sosd.missing(Path::new("/nonexistent")).unwrap().contains("/nonexistent/coast"));
    }
}
