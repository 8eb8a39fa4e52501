//! A copy of the database in another directory, as it is at one moment, while it goes on.
//!
//! 1. With edits held: clone the manifest's state, take the View (its files stay for as long as it is
//!    held), and open the log's segments. The copy is what a death of the process would leave at this
//!    moment: every commit that was visible, whole, and none after.
//! 2. Link tables, filters and value segments, which nobody ever changes; where the file system cannot,
//!    copy them.
//! 3. Copy the log's records.
//! 4. Write a manifest of a new identity; turning `CURRENT` over to it makes the directory a database.
//!    A crash before leaves no `CURRENT`, which no open takes for a database.
//!
//! Whoever adds a kind of file that the state names adds it to [`named_files`]. Whoever changes
//! a file after it was finished must know that it may be linked: none is written over that was linked here
//! ([`crate::sstable::reader::Table::is_shared`]), and [`crate::value_log`] gives no space back of one.

use std::path::Path;

use super::open::{LOCK, create_dir, named_files};
use super::{Engine, lock, writable};
use crate::disk::{Access, Disk};
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::{CURRENT, Manifest};

/// How much is copied at once where links are refused.
const COPY_BYTES: u64 = 1 << 20;

impl Engine {
    /// Makes `to` a copy of the database as it is now.
    ///
    /// # Errors
    /// `InvalidArgument` if something is in `to` already; `Locked` if it is this database, or open;
    /// `Closed`, `Poisoned`, `ReadOnly`; `Corruption` if a table could not be opened; any error of
    /// the disk. Then there is no database in `to`.
    pub fn checkpoint(&self, to: &Path) -> Result<()> {
        self.health.check_writable()?;
        if let Some(damage) = self.damage() {
            return Err(damage
                .and_say("; a checkpoint would be as damaged as this database: none was made"));
        }
        let disk = &**self.disk();
        create_dir(disk, to)?;
        // First without the lock: who holds that of a database says nothing to whoever named it by mistake.
        check_empty(disk, to)?;
        let _lock = disk.lock(&to.join(LOCK))?;
        check_empty(disk, to)?;
        self.copy_to(to).inspect_err(|_| clear(disk, to))
    }

    fn copy_to(&self, to: &Path) -> Result<()> {
        let disk = &**self.disk();
        // Files stay for as long as a View shows them.
        let (mut state, log, view) = {
            let mut guard = lock(&self.manifest);
            self.health.check_writable()?;
            let state = writable(&mut guard)?.state().clone();
            let log = self.log.begin_copy(&state.log)?;
            (state, log, self.view.load_full())
        };
        let segments = view.keyspaces.values().flat_map(|keyspace| keyspace.tables.segments.iter());
        segments.for_each(|segment| segment.is_shared());
        let tables = view.keyspaces.values().flat_map(|keyspace| keyspace.tables.all());
        tables.for_each(|table| table.is_shared());
        for from in named_files(self.dir(), &state, &view) {
            let name = from.file_name().unwrap_or_default();
            link_or_copy(disk, &from, &to.join(name))?;
        }
        // To write the log takes long: what is replaced meanwhile is to go.
        drop(view);
        let database = disk.random_u64();
        state.synced = log.up_to();
        state.log = log.write(disk, to, database)?;
        Manifest::begin(self.disk().clone(), to, database, 1, state).map(drop)
    }
}

fn check_empty(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let Some(name) = disk.list(dir)?.into_iter().find(|name| name != LOCK) else { return Ok(()) };
    let message = format!(
        "a checkpoint needs an empty directory, found {name:?}; remove what an earlier one left there, or \
         choose another"
    );
    Err(Error::invalid(message).at_path(dir))
}

/// A second name for a file that is finished and durable; a durable copy where there can be none.
fn link_or_copy(disk: &dyn Disk, from: &Path, to: &Path) -> Result<()> {
    match disk.link(from, to) {
        // Between file systems, or on one without links.
        Err(e) if e.kind() == ErrorKind::Io => copy(disk, from, to),
        linked => linked,
    }
}

fn copy(disk: &dyn Disk, from: &Path, to: &Path) -> Result<()> {
    let (source, target) = (disk.open(from, Access::Sequential)?, disk.create(to)?);
    let length = source.length_bytes()?;
    let mut offset = 0;
    while offset < length {
        let mut piece = vec![0; COPY_BYTES.min(length - offset) as usize];
        source.read_exact_at(&mut piece, offset)?;
        target.write_all_at(&piece, offset)?;
        offset += piece.len() as u64;
    }
    target.sync()
}

/// Removes what a checkpoint that failed has written, unless it may count: then it is left to whoever
/// reads the error.
fn clear(disk: &dyn Disk, to: &Path) {
    let Ok(names) = disk.list(to) else { return };
    if names.iter().any(|name| name == CURRENT) {
        return;
    }
    for name in names.iter().filter(|name| *name != LOCK) {
        // What cannot be removed is named by the next checkpoint's error.
        let _ = disk.remove(&to.join(name));
    }
}
