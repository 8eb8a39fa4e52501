//! The one file of the command that touches a store.

use std::io::{Read, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};

use clap::builder::NonEmptyStringValueParser;
use learnedkv::{
    Database, Inspect, Iter, Keyspace, KeyspaceOptions, MAX_KEY_BYTES, MAX_NAME_BYTES, OpenReport,
    Salvage, ValueReader, Verified, Verifying,
};
use learnedkv_bench::engines::learnedkv::told;
use learnedkv_bench::{Error, Result};

/// The engine that `learnedkv bench` measures.
pub const ENGINE: &str = "learnedkv";

/// Which database, and which keyspace of it.
#[derive(Debug, Clone, clap::Args)]
pub struct Place {
    /// Directory of the database
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Keyspace of the database
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = NonEmptyStringValueParser::new())]
    keyspace: String,
}

/// How a keyspace is made that is not there yet.
#[derive(Debug, Clone, clap::Args)]
pub struct Making {
    /// Store of a keyspace that is made: tiered (the default) or lsm; one that is there must have it
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
}

/// An open database and one of its keyspaces.
pub struct Store {
    database: Database,
    keyspace: Keyspace,
}

/// Which keys are scanned.
#[derive(Debug)]
pub enum Wanted {
    /// From one on, and those before another; either may be missing.
    Between(Option<Vec<u8>>, Option<Vec<u8>>),
    /// Those that begin so.
    Prefix(Vec<u8>),
}

/// What a command does with a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Reads: not a byte of the directory is changed.
    Read,
    /// Reads what is left where the log is damaged.
    Salvage,
    /// Changes what is there.
    Change,
    /// Changes it, or makes it.
    Make,
}

/// Says something beside what was asked for. Where nobody can be told any more the rest is done all the same.
fn note(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Whether a key may be put: asked before a database is made for it.
pub fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > MAX_KEY_BYTES {
        let found = key.len();
        return Err(Error::usage(format!(
            "expected a key of at most {MAX_KEY_BYTES} bytes, found {found}"
        )));
    }
    Ok(())
}

/// Whether `dir` can be the directory of a database, which may have to be made.
fn check_dir(dir: &Path, purpose: Purpose) -> Result<()> {
    if dir.exists() && !dir.is_dir() {
        let what = "this is a file; expected the directory of a database";
        return Err(Error::usage(format!("{}: {what}", dir.display())));
    }
    // What cannot be looked at may be there: to open it says why.
    if purpose != Purpose::Make && matches!(dir.try_exists(), Ok(false)) {
        return Err(Error::usage(format!("{}: there is no such directory", dir.display())));
    }
    Ok(())
}

/// Opens the database at `dir`; says what was dropped of its log, and which tables and value segments are
/// damaged, if any.
pub fn open_database(dir: &Path, purpose: Purpose) -> Result<Database> {
    check_dir(dir, purpose)?;
    let database = Database::builder(dir)
        .create_if_missing(purpose == Purpose::Make)
        .read_only(purpose == Purpose::Read)
        .salvage(purpose == Purpose::Salvage)
        .open()
        .map_err(told)?;
    if let Some(dropped) = dropped(database.open_report()) {
        note(format_args!("note: {}: {dropped}", dir.display()));
    }
    if let Some(damage) = &database.open_report().log_damage {
        note(format_args!(
            "warning: {damage}; what was put behind that is there only as far as tables have it"
        ));
    }
    for table in &database.open_report().damaged_tables {
        note(format_args!("warning: {}", table.error));
    }
    for segment in &database.open_report().damaged_segments {
        note(format_args!("warning: {}", segment.error));
    }
    Ok(database)
}

/// Makes `to` a copy of the database at `dir`, all keyspaces.
pub fn checkpoint(dir: &Path, to: &Path) -> Result<()> {
    let database = open_database(dir, Purpose::Change)?;
    database.checkpoint(to).map_err(told)?;
    database.close().map_err(told)
}

/// Checks every file of the database at `dir`, or of a keyspace of it.
pub fn verify(
    dir: &Path,
    keyspace: Option<&str>,
    watch: &mut dyn FnMut(Verifying<'_>),
) -> Result<Verified> {
    check_dir(dir, Purpose::Read)?;
    Database::builder(dir).verify(keyspace, watch).map_err(told)
}

/// Tells `say` what a file says, or each file of a directory.
pub fn inspect(path: &Path, blocks: bool, say: &mut dyn FnMut(&str)) -> Result<()> {
    Inspect::file(path).blocks(blocks).run(say).map_err(told)
}

/// The error for a keyspace that was asked for and is not there.
pub fn no_keyspace(dir: &Path, name: &str, database: &Database) -> Error {
    let names = database.keyspace_names();
    let names = if names.is_empty() { "none".to_string() } else { names.join(", ") };
    Error::usage(format!("{}: there is no keyspace `{name}`; there are: {names}", dir.display()))
}

/// What an opening dropped, in words.
fn dropped(report: &OpenReport) -> Option<String> {
    if report.dropped_records == 0 {
        return None;
    }
    let place = report
        .log_end
        .map_or(String::new(), |(segment, byte)| format!(" (log segment {segment}, byte {byte})"));
    Some(format!(
        "{} operations were recovered from the log; {} records behind its end{place} were never \
         synced and are dropped",
        report.recovered_operations, report.dropped_records
    ))
}

impl Place {
    /// Opens the keyspace, which must be there.
    pub fn open(&self, purpose: Purpose) -> Result<Store> {
        let database = open_database(&self.dir, purpose)?;
        let Some(keyspace) = database.find(&self.keyspace) else {
            return Err(no_keyspace(&self.dir, &self.keyspace, &database));
        };
        Ok(Store { database, keyspace })
    }

    /// Opens the keyspace; makes it, and the database if the directory is missing or empty.
    pub fn open_or_create(&self, making: &Making) -> Result<Store> {
        let mut options = KeyspaceOptions::default();
        if let Some(store) = &making.store {
            options = options.store(learnedkv::Store::from_text(store).map_err(told)?);
        }
        if self.keyspace.len() > MAX_NAME_BYTES {
            let found = self.keyspace.len();
            return Err(Error::usage(format!(
                "--keyspace: expected a name of 1 to {MAX_NAME_BYTES} bytes, found {found}"
            )));
        }
        let database = open_database(&self.dir, Purpose::Make)?;
        let keyspace = database.keyspace(&self.keyspace, options);
        Ok(Store { keyspace: keyspace.map_err(told)?, database })
    }
}

/// The first key behind all that begin with `prefix`; `None`: there is none.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

impl Store {
    /// Stores `value` under `key`.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keyspace.insert(key, value).map_err(told)
    }

    /// Stores all that `reader` gives under `key`.
    pub fn put_from(&self, key: &[u8], reader: impl Read) -> Result<()> {
        self.keyspace.insert_reader(key, reader).map(drop).map_err(told)
    }

    /// The value of `key`, to be read piece by piece.
    pub fn reader(&self, key: &[u8]) -> Result<Option<ValueReader>> {
        self.keyspace.get_reader(key).map_err(told)
    }

    /// The value of `key`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.keyspace.get(key).map_err(told)?.map(|value| value.to_vec()))
    }

    /// Whether `key` is there. Its value is not read: it may be damaged, or very long.
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        self.keyspace.contains_key(key).map_err(told)
    }

    /// Removes `key`.
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.keyspace.remove(key).map_err(told)
    }

    /// Removes all keys from `from` on that come before `to`.
    pub fn delete_range(&self, from: Option<&[u8]>, to: Option<&[u8]>) -> Result<()> {
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        let to = to.map_or(Bound::Unbounded, Bound::Excluded);
        self.keyspace.remove_range::<&[u8]>((from, to)).map_err(told)
    }

    /// Removes all keys that begin with `prefix`.
    pub fn delete_prefix(&self, prefix: &[u8]) -> Result<()> {
        self.keyspace.remove_prefix(prefix).map_err(told)
    }

    fn walk(&self, wanted: &Wanted) -> Iter {
        match wanted {
            Wanted::Between(from, to) => {
                let from = from.as_deref().map_or(Bound::Unbounded, Bound::Included);
                let to = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                self.keyspace.range::<&[u8]>((from, to))
            }
            Wanted::Prefix(prefix) => self.keyspace.prefix(prefix),
        }
    }

    /// Whether what was opened to be salvaged lacks part of its log.
    pub fn lacks_log(&self) -> bool {
        self.database.open_report().log_damage.is_some()
    }

    /// Shows `visit` every wanted entry that can be read until it returns `false`, without its value if `keys_only`, and says of the
    /// others what is wrong. Whether all could.
    pub fn salvage(
        &self,
        wanted: &Wanted,
        keys_only: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> bool {
        let mut is_whole = !self.lacks_log();
        let mut warn = |error: learnedkv::Error| {
            is_whole = false;
            note(format_args!("warning: {error}"));
        };
        for key in self.left(wanted) {
            let read = key.and_then(|key| {
                let value = if keys_only { None } else { self.keyspace.get(&key)? };
                Ok((key, value))
            });
            match read {
                // Nothing is made up for a key that lookups do not find.
                Ok((_, None)) if !keys_only => {}
                Ok((key, value)) if !visit(&key, value.as_deref().unwrap_or_default()) => break,
                Ok(_) => {}
                Err(error) => warn(error),
            }
        }
        is_whole
    }

    fn left(&self, wanted: &Wanted) -> Salvage {
        let (from, to) = match wanted {
            Wanted::Between(from, to) => (from.clone(), to.clone()),
            Wanted::Prefix(prefix) => (Some(prefix.clone()), after_prefix(prefix)),
        };
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        self.keyspace.salvage((from, to.map_or(Bound::Unbounded, Bound::Excluded)))
    }

    /// Shows `visit` every wanted entry until it returns `false`.
    pub fn scan(&self, wanted: &Wanted, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        for entry in self.walk(wanted) {
            let (key, value) = entry.map_err(told)?;
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    /// Shows `visit` every wanted key until it returns `false`. Values kept apart from their keys are not read.
    pub fn scan_keys(&self, wanted: &Wanted, visit: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
        for key in self.walk(wanted).keys() {
            if !visit(&key.map_err(told)?) {
                break;
            }
        }
        Ok(())
    }

    /// Takes in entries in ascending key order.
    pub fn load(&self, entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<()> {
        self.keyspace.ingest(entries).map(|_| ()).map_err(told)
    }

    /// Closes it in good order: an error here means that something may not have reached the disk.
    pub fn close(self) -> Result<()> {
        drop(self.keyspace);
        self.database.close().map_err(told)
    }
}
