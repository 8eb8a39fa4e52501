//! What single files say, as lines of text for people: of a table, a filter, a value segment, a segment of the log, a
//! manifest, `CURRENT`; and of a directory what each of its files is.
//!
//! A file is looked at by itself: no manifest says what is expected of it, no lock is taken, and nothing is
//! changed. What is damaged is told where it stands, and what can be told without it follows. (Of a database that is open: a table
//! that a sweep replaces may be written over while it is looked at, and is no table then. `learnedkv verify` takes the lock.)
//! Any bytes may stand in a file: they give lines or an error, never a panic. Memory: of a log or manifest the
//! file, of a table and a filter a section or a block.

mod log;
mod manifest;
mod table;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::real::RealDisk;
use crate::disk::{Access, Disk, File};
use crate::error::{Error, ErrorKind, Result};
use crate::format::filter::{decode_filter, peek_tag};
use crate::format::kind::{FileKind, kind_of};
use crate::format::table::FOOTER_BYTES;
use crate::format::value::{self, VALUES_HEADER_BYTES};
use crate::manifest::{CURRENT, manifest_number};
use crate::sstable::filter::file::filter_id;
use crate::sstable::{filter, table_id};
use crate::{value_log, wal};

/// The longest key or name that is shown whole, bytes.
const SHOWN_BYTES: usize = 60;

/// A look at a file of a database, or at its directory.
///
/// ```
/// # use learnedkv::{Database, Inspect, KeyspaceOptions};
/// # fn main() -> learnedkv::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("learnedkv-inspect-{}", std::process::id()));
/// let db = Database::open(&dir)?;
/// db.keyspace("fruit", KeyspaceOptions::default())?.insert("apple", "red")?;
/// db.close()?;
/// let mut text = String::new();
/// Inspect::file(dir.join("log-00000002")).run(&mut |line| text += line)?;
/// assert!(text.contains("put \"apple\", 3 bytes"));
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok(())
/// # }
/// ```
#[must_use]
#[derive(Debug)]
pub struct Inspect {
    path: PathBuf,
    disk: Option<Arc<dyn Disk>>,
    blocks: bool,
}

impl Inspect {
    /// A look at what stands at `path`.
    pub fn file(path: impl AsRef<Path>) -> Inspect {
        Inspect { path: path.as_ref().to_owned(), disk: None, blocks: false }
    }

    /// Whether each block of a table is told of; off by default. All of the table is read for that.
    pub fn blocks(mut self, on: bool) -> Inspect {
        self.blocks = on;
        self
    }

    /// Uses another disk than the operating system's: a simulated one, in tests.
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Inspect {
        self.disk = Some(disk);
        self
    }

    /// Tells `say`, line by line. Damage is told too, and the first of it is the error in the end.
    ///
    /// # Errors
    /// `NotFound`; `NotADatabase` if it is no file of a database; `Corruption` if it is damaged; `Unsupported` if a
    /// newer version of learnedkv wrote it; any error of the disk.
    pub fn run(self, say: &mut dyn FnMut(&str)) -> Result<()> {
        let disk = self.disk.unwrap_or_else(|| Arc::new(RealDisk::new()));
        if let Ok(names) = disk.list(&self.path) {
            return directory(&*disk, &self.path, names, say);
        }
        let mut told = Told { say, first: None };
        let looked =
            look(&*disk, &self.path, Depth { lists: true, blocks: self.blocks }, &mut told);
        looked.map_err(|e| e.at_path(&self.path))?;
        told.first.map_or(Ok(()), |e| Err(e.at_path(&self.path)))
    }
}

/// How much is told of a file.
#[derive(Debug, Clone, Copy)]
struct Depth {
    /// What it lists: sections, records, edits.
    lists: bool,
    /// The blocks of a table.
    blocks: bool,
}

/// Where lines go, and the first damage that was among them.
struct Told<'a> {
    say: &'a mut dyn FnMut(&str),
    first: Option<Error>,
}

impl Told<'_> {
    fn line(&mut self, line: impl AsRef<str>) {
        (self.say)(line.as_ref());
    }

    fn damage(&mut self, error: Error) {
        let place = error.offset_bytes().map_or(String::new(), |at| format!(" at byte {at}"));
        // Its offset is in the line, its file in the heading.
        self.line(format!("damage{place}: {}", error.message()));
        self.first.get_or_insert(error);
    }
}

/// A line for each file of a directory.
fn directory(
    disk: &dyn Disk,
    dir: &Path,
    mut names: Vec<String>,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    names.sort();
    let mut first = None;
    for name in names {
        let path = dir.join(&name);
        if kind_by_name(&name).is_none() && name != CURRENT {
            say(&format!("{name}: not looked at"));
            continue;
        }
        let mut say_of = |line: &str| say(&format!("{name}: {line}"));
        let mut told = Told { say: &mut say_of, first: None };
        if let Err(e) = look(disk, &path, Depth { lists: false, blocks: false }, &mut told) {
            told.damage(e);
        }
        first = first.or(told.first.map(|e| e.at_path(&path)));
    }
    first.map_or(Ok(()), Err)
}

/// What a file of that name is.
fn kind_by_name(name: &str) -> Option<FileKind> {
    let kinds = [
        (table_id(name), FileKind::Table),
        (filter_id(name), FileKind::Filter),
        (value_log::segment_id(name), FileKind::Values),
        (wal::segment_id(name), FileKind::Log),
        (manifest_number(name), FileKind::Manifest),
    ];
    kinds.iter().find(|(number, _)| number.is_some()).map(|(_, kind)| *kind)
}

fn look(disk: &dyn Disk, path: &Path, depth: Depth, told: &mut Told<'_>) -> Result<()> {
    let file = disk.open(path, Access::Sequential)?;
    let length = file.length_bytes()?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name == CURRENT {
        return current(&*file, length, told);
    }
    // By its bytes; where these are damaged, by its name.
    let beginning = read(&*file, 0, length.min(8))?;
    let end_at = length.saturating_sub(FOOTER_BYTES as u64);
    let end = read(&*file, end_at, length - end_at)?;
    match kind_of(&beginning, &end).or_else(|| kind_by_name(&name)) {
        Some(FileKind::Table) => table::look(file, length, depth, told),
        Some(FileKind::Filter) => filter_file(&*file, length, told),
        Some(FileKind::Values) => values(&*file, length, told),
        Some(FileKind::Log) => log::look(&read(&*file, 0, length)?, depth, told),
        Some(FileKind::Manifest) => manifest::look(&read(&*file, 0, length)?, depth, told),
        None => Err(Error::new(
            ErrorKind::NotADatabase,
            format!(
                "expected a table, a filter, a value segment, a log segment, a manifest or {CURRENT}; found {length} bytes \
                 that begin with {beginning:02x?}"
            ),
        )),
    }
}

fn read(file: &dyn File, offset: u64, length: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(length as usize).is_err() {
        let message = format!("there is no memory for {length} bytes");
        return Err(Error::new(ErrorKind::Io, message));
    }
    bytes.resize(length as usize, 0);
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

fn current(file: &dyn File, length: u64, told: &mut Told<'_>) -> Result<()> {
    let bytes = read(file, 0, length.min(SHOWN_BYTES as u64))?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match text.strip_suffix('\n').filter(|name| manifest_number(name).is_some()) {
        Some(name) => told.line(format!("names {name}")),
        None => {
            let message = format!(
                "expected the name of a manifest and a line end, found {length} bytes, {text:?}"
            );
            return Err(Error::new(ErrorKind::NotADatabase, message));
        }
    }
    Ok(())
}

fn filter_file(file: &dyn File, length: u64, told: &mut Told<'_>) -> Result<()> {
    let bytes = read(file, 0, length)?;
    let tag = peek_tag(&bytes).unwrap_or_default();
    let found = decode_filter(tag, &bytes)?;
    let payload = found.payload.len();
    told.line(format!(
        "filter of {length} bytes, of the table tagged {tag:016x}: kind {}, {} keys, {payload} bytes ({:.2} bits a key)",
        found.kind,
        found.keys,
        payload as f64 * 8.0 / found.keys.max(1) as f64
    ));
    if let Err(e) = filter::decode(found.kind, found.payload) {
        told.damage(e);
    }
    Ok(())
}

fn values(file: &dyn File, length: u64, told: &mut Told<'_>) -> Result<()> {
    let header = read(file, 0, length.min(VALUES_HEADER_BYTES as u64))?;
    let tag = value::peek_tag(&header).unwrap_or_default();
    value::check_header(&header, tag)?;
    told.line(format!(
        "value segment of {length} bytes, tagged {tag:016x}: {} bytes of values, which tables and the log point at",
        length - VALUES_HEADER_BYTES as u64
    ));
    Ok(())
}

/// A key, or the beginning of a long one.
fn shown(key: &[u8]) -> String {
    match key.get(..SHOWN_BYTES) {
        Some(start) if key.len() > SHOWN_BYTES => format!("\"{}\"...", start.escape_ascii()),
        _ => format!("\"{}\"", key.escape_ascii()),
    }
}
