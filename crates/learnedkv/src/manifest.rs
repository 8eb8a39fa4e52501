//! The state of a database on disk: which keyspaces, tables, partitions and log segments it has.
//!
//! A manifest is a file of edits ([`crate::format::manifest`]); `CURRENT` names the one that counts.
//! An edit is durable when [`Manifest::commit`] returns. Every open writes a fresh manifest, whose
//! first edit is the whole state, and then turns `CURRENT` over to it in one rename: that is also
//! how the end of the log that recovery found is committed.
//!
//! **Seals.** Of a damaged last edit it could not be told whether it was torn by a crash (then it never
//! counted) or durable. So an empty edit with the next number, the seal, is written after it has been
//! synced, two sectors on at most: where a later edit stands, the damaged one was durable. The next
//! edit stands where it would without the seal.
//!
//! **`CURRENT`** holds the manifest's name and a line end, and nothing else. Of manifest 12:
//! ```text
//! 6d 61 6e 69 66 65 73 74 | 2d   manifest-
//! 30 30 30 30 30 30 31 32 | 0a   00000012
//! ```
//! The manifest never opens a table and never reads the log.

mod state;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Access, Disk, File};
use crate::error::{Error, ErrorKind, Result};
use crate::format::manifest::{
    Edit, MANIFEST_HEADER_BYTES, decode_edit, decode_header, encode_edit, encode_header, later_edit,
};
use crate::format::name::{file_name, file_number};
pub use state::{FrozenState, KeyspaceState, State, next_keyspace, touched_keyspaces};

/// The file that names the manifest.
pub const CURRENT: &str = "CURRENT";
const CURRENT_NEW: &str = "CURRENT.new";

/// How much of a `CURRENT` that names nothing an error shows.
const SHOWN_CHARS: usize = 40;

/// Space is reserved in steps of this, so that a full disk does not stop an edit that frees space.
const PREALLOCATE_BYTES: u64 = 1 << 20;
/// The same where the disk has not [many](PLENTY) such steps free: else one edit took all that is held back for a full disk.
pub const LEAST_RESERVE_BYTES: u64 = 64 << 10;
const PLENTY: u64 = 16;
/// A manifest longer than this, and mostly past edits, is begun anew; on a small disk one that takes
/// [such a part](ROLL_OVER_SHARE) of it.
const ROLL_OVER_BYTES: u64 = 16 << 20;
const ROLL_OVER_SHARE: u64 = 64;
const LEAST_ROLL_OVER_BYTES: u64 = 64 << 10;

/// How far a seal stands off at least, so that the loss of a sector does not take it too.
const SECTOR_BYTES: u64 = 512;

/// The open manifest.
#[derive(Debug)]
pub struct Manifest {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    database: u64,
    number: u64,
    path: PathBuf,
    file: Arc<dyn File>,
    offset_bytes: u64,
    allocated_bytes: u64,
    ordinal: u32,
    first_edit_bytes: u64,
    /// What the whole state took as an edit when that was measured last, and where the manifest ended then.
    state_bytes: u64,
    measured_at: u64,
    in_doubt: bool,
    /// It is not begun anew before it ends here: there was no room when that was tried.
    rolls_over_from: u64,
    /// The number of the manifest that it rolls over to.
    next_number: u64,
    state: State,
}

fn manifest_name(number: u64) -> String {
    file_name("manifest", number)
}

/// What `CURRENT` says of the manifest of that number.
fn current_text(number: u64) -> String {
    format!("{}\n", manifest_name(number))
}

/// The manifest whose file is named `name`.
pub fn manifest_number(name: &str) -> Option<u64> {
    file_number("manifest", name)
}

/// What a directory's manifest says.
#[derive(Debug)]
pub struct Loaded {
    /// The database's random identity.
    pub database: u64,
    /// The state.
    pub state: State,
    /// The number of the manifest; 0: there is none yet.
    pub number: u64,
}

/// Reads the manifest that `CURRENT` names; `None` if there is no `CURRENT`.
///
/// # Errors
/// `Corruption`, `Unsupported` or `NotADatabase` saying what is wrong where; any error of the disk.
pub fn load(disk: &dyn Disk, dir: &Path) -> Result<Option<Loaded>> {
    let current_path = dir.join(CURRENT);
    let current = match read_file(disk, &current_path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let text = String::from_utf8_lossy(&current);
    let Some(number) = text.strip_suffix('\n').and_then(manifest_number) else {
        let shown: String = text.chars().take(SHOWN_CHARS).collect();
        let more = if shown.len() < text.len() { "..." } else { "" };
        let message = format!(
            "expected the name of a manifest and a line end, found {} bytes, {shown:?}{more}; {}",
            current.len(),
            what_current_should_say(&disk.list(dir)?)
        );
        return Err(Error::new(ErrorKind::NotADatabase, message).at_path(&current_path));
    };
    let path = dir.join(manifest_name(number));
    let bytes = read_file(disk, &path).map_err(|e| match e.kind() {
        ErrorKind::NotFound => {
            let message = format!(
                "it names {}, which is not there; restore the database from a backup: without its \
                 manifest nobody knows which of its files count",
                manifest_name(number)
            );
            Error::corruption(message).at_path(&current_path)
        }
        _ => e,
    })?;
    // Space is reserved before anything is written to it, and survives with what is. Where the disk
    // was full, a file system may have reserved a part of it: nothing stands there.
    let whole = bytes.len() - bytes.len() % LEAST_RESERVE_BYTES as usize;
    if bytes.iter().skip(whole).any(|byte| *byte != 0) {
        let message = format!(
            "expected a multiple of {LEAST_RESERVE_BYTES} bytes, found {}: it was cut, or something was written behind it; \
             restore it from a copy",
            bytes.len()
        );
        return Err(Error::corruption(message).at_path(&path).at_offset(bytes.len() as u64));
    }
    let (database, state) = replay(&bytes, number).map_err(|e| e.at_path(&path))?;
    Ok(Some(Loaded { database, state, number }))
}

/// What to do about a `CURRENT` that says nothing, or is not there, among files of these names.
///
/// An open removes all manifests but the one that counts, so that of a database that was open once
/// one is there, but after a crash amid an open: then only `CURRENT` knew which.
pub fn what_current_should_say(names: &[String]) -> String {
    let manifests: Vec<_> = names.iter().filter(|name| manifest_number(name).is_some()).collect();
    match manifests[..] {
        [] => "there is no manifest here either: this is no learnedkv database, or a part of one; restore \
               it from a backup"
            .to_owned(),
        [one] => format!(
            "{one} is the only manifest here: if this was a database, and not a checkpoint that never came \
             to its end, {CURRENT} should hold \"{one}\" and a line end; keep a copy of the directory, \
             write that, and open it for reading only first"
        ),
        _ => format!(
            "there are {} manifests here ({} to {}), and {CURRENT} alone said which counts: restore the \
             database from a backup",
            manifests.len(),
            manifests.iter().min().map_or("", |name| name),
            manifests.iter().max().map_or("", |name| name)
        ),
    }
}

/// So much is read at once, and of zeros at the end so much is told of, bytes: more than any edit ends in, and a multiple of
/// what is reserved.
const WINDOW_BYTES: u64 = 1 << 20;

/// The bytes of a file, without most of the zeros that it may end in: a file that was lengthened by a hole may be longer than
/// memory.
fn read_file(disk: &dyn Disk, path: &Path) -> Result<Vec<u8>> {
    let file = disk.open(path, Access::Sequential)?;
    let length_bytes = file.length_bytes()?;
    let (mut bytes, mut window, mut at) = (Vec::new(), Vec::new(), 0);
    while at < length_bytes {
        window.resize((length_bytes - at).min(WINDOW_BYTES) as usize, 0);
        file.read_exact_at(&mut window, at)?;
        if window.iter().any(|byte| *byte != 0) {
            bytes.resize(at as usize, 0);
            bytes.extend_from_slice(&window);
        }
        at += window.len() as u64;
    }
    bytes.resize((bytes.len() as u64 + WINDOW_BYTES).min(length_bytes) as usize, 0);
    Ok(bytes)
}

/// The database's identity and the state that the bytes of manifest `number` tell of.
///
/// # Errors
/// As [`load`], without the path.
pub fn replay(bytes: &[u8], number: u64) -> Result<(u64, State)> {
    let database = decode_header(bytes, number)?;
    let mut state = State::default();
    let mut offset = MANIFEST_HEADER_BYTES;
    let mut ordinal = 0;
    loop {
        match decode_edit(bytes, database, number, offset, ordinal) {
            Ok((edit, length)) => {
                state.apply(&edit).map_err(|e| e.at_offset(offset as u64))?;
                offset += length;
                ordinal += 1;
            }
            // Edits are synced one by one, so only the last can be torn, and the first never is.
            Err(e) if !e.is_corruption() || ordinal == 0 => return Err(e),
            Err(e) => {
                let behind = later_edit(bytes, offset + 1, ordinal, |at, later| {
                    decode_edit(bytes, database, number, at, later).is_ok()
                });
                return match behind {
                    Some(found) => Err(Error::corruption(format!(
                        "{e}; yet a later edit stands at byte {found}: restore the database from a backup or checkpoint"
                    ))
                    .at_offset(offset as u64)),
                    None => Ok((database, state)),
                };
            }
        }
    }
}

impl Manifest {
    /// Writes manifest `number` with `state` as its first edit, and turns `CURRENT` over to it.
    ///
    /// # Errors
    /// Any error of the disk. If `CURRENT` may name the new manifest then, both say the same: reopen, or
    /// begin one of a higher number.
    pub fn begin(
        disk: Arc<dyn Disk>,
        dir: &Path,
        database: u64,
        number: u64,
        state: State,
    ) -> Result<Manifest> {
        let manifest = Manifest::write(disk, dir, database, number, state)?;
        manifest.turn_current()?;
        Ok(manifest)
    }

    /// Writes a manifest that does not count yet. Nothing is left of it where that fails.
    fn write(
        disk: Arc<dyn Disk>,
        dir: &Path,
        database: u64,
        number: u64,
        state: State,
    ) -> Result<Manifest> {
        let path = dir.join(manifest_name(number));
        let file = disk.create(&path)?;
        let mut manifest = Manifest {
            disk,
            dir: dir.to_owned(),
            database,
            number,
            path,
            file,
            offset_bytes: 0,
            allocated_bytes: 0,
            ordinal: 0,
            first_edit_bytes: 0,
            state_bytes: 0,
            measured_at: 0,
            in_doubt: false,
            rolls_over_from: 0,
            next_number: number + 1,
            state,
        };
        let written = manifest.write_first();
        written.inspect_err(|_| {
            // What cannot be removed now is an orphan that the next open removes.
            let _ = manifest.disk.remove(&manifest.path);
        })?;
        Ok(manifest)
    }

    fn write_first(&mut self) -> Result<()> {
        self.write_next(&encode_header(self.number, self.database))?;
        let edit = self.state.to_edit();
        self.append(&edit)?;
        self.first_edit_bytes = self.offset_bytes;
        (self.state_bytes, self.measured_at) = (self.offset_bytes, self.offset_bytes);
        self.disk.sync_dir(&self.dir)?;
        self.write_current()
    }

    /// Writes the file that is to become `CURRENT`.
    fn write_current(&self) -> Result<()> {
        let new = self.dir.join(CURRENT_NEW);
        match self.disk.remove(&new) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let file = self.disk.create(&new)?;
        file.write_all_at(current_text(self.number).as_bytes(), 0)?;
        file.sync()
    }

    /// From now on, or after a crash amid it perhaps, this manifest counts.
    fn turn_current(&self) -> Result<()> {
        self.disk.rename(&self.dir.join(CURRENT_NEW), &self.dir.join(CURRENT))?;
        self.disk.sync_dir(&self.dir).map_err(Error::in_doubt)
    }

    /// The state after all edits committed.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// What a manifest that begins with the state of now takes, at most.
    pub fn state_bytes(&self) -> u64 {
        // An edit adds no more to the state than it takes itself.
        self.state_bytes + (self.offset_bytes - self.measured_at)
    }

    /// Measures the state, once edits since the last time took a quarter of it.
    fn measure(&mut self) {
        let since = self.offset_bytes - self.measured_at;
        if since > (self.state_bytes / 4).max(LEAST_RESERVE_BYTES) {
            let edit = self.state.to_edit();
            let bytes = encode_edit(&edit, self.database, self.number, 0, 0).len();
            self.state_bytes = (MANIFEST_HEADER_BYTES + bytes) as u64;
            self.measured_at = self.offset_bytes;
        }
    }

    /// The file's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether an edit failed of which it is unknown whether it is durable: nothing more may be
    /// committed.
    pub fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// Makes an edit durable and applies it. All that it depends on in the log is durable.
    ///
    /// # Errors
    /// `Corruption` if the edit does not fit, `DiskFull` if there is no room for it (it may be tried again); any error
    /// of the disk. See [`Manifest::is_in_doubt`].
    pub fn commit(&mut self, edit: &Edit) -> Result<()> {
        if self.offset_bytes >= self.rolls_over_from && self.is_mostly_past() {
            // Where there is no room for another, the old one goes on.
            match self.roll_over() {
                Err(e) if self.in_doubt => return Err(e),
                Err(_) => self.rolls_over_from = self.offset_bytes + LEAST_RESERVE_BYTES,
                Ok(()) => {}
            }
        }
        let before = self.state.touched_by(edit);
        let written = self.state.apply(edit).and_then(|()| self.append(edit));
        if let Err(e) = written {
            self.state.restore(before);
            return Err(e);
        }
        // The edit is durable. A seal that cannot be written is one that would not be found.
        let _ = self.seal(edit);
        self.measure();
        Ok(())
    }

    /// Says that the edit before was durable. Not synced: a crash may lose it.
    fn seal(&mut self, edit: &Edit) -> Result<()> {
        let seal = Edit { changes: Vec::new(), ..*edit };
        let at = self.offset_bytes.next_multiple_of(SECTOR_BYTES) + SECTOR_BYTES;
        let bytes = encode_edit(&seal, self.database, self.number, at, self.ordinal);
        self.write_at(&bytes, at)
    }

    /// Whether it is to be begun anew.
    fn is_mostly_past(&self) -> bool {
        let past_bytes = self.offset_bytes - self.first_edit_bytes;
        past_bytes > LEAST_ROLL_OVER_BYTES && past_bytes > self.roll_over_bytes()
    }

    /// It is begun anew once past edits take so much.
    fn roll_over_bytes(&self) -> u64 {
        let room = self.disk.room(&self.dir);
        let share = room.map_or(u64::MAX, |room| room.total_bytes / ROLL_OVER_SHARE);
        share.clamp(LEAST_ROLL_OVER_BYTES, ROLL_OVER_BYTES).max(self.first_edit_bytes)
    }

    fn roll_over(&mut self) -> Result<()> {
        let old = self.path.clone();
        let (disk, dir) = (self.disk.clone(), self.dir.clone());
        let state = self.state.clone();
        // Where this fails, on a full disk say, the old manifest goes on.
        let number = self.next_number;
        self.next_number += 1;
        let next = Manifest::write(disk.clone(), &dir, self.database, number, state);
        // What was written of it takes the room that is wanting.
        let next = next.inspect_err(|_| drop(disk.remove(&dir.join(manifest_name(number)))))?;
        self.in_doubt = true;
        next.turn_current()?;
        *self = next;
        // What cannot be removed now is an orphan that the next open removes.
        let _ = self.disk.remove(&old);
        Ok(())
    }

    fn append(&mut self, edit: &Edit) -> Result<()> {
        let bytes = encode_edit(edit, self.database, self.number, self.offset_bytes, self.ordinal);
        self.reserve(self.offset_bytes + bytes.len() as u64)?;
        self.in_doubt = true;
        self.write_next(&bytes)?;
        // It may be found, whatever the disk says: it is not to be written once more. (But the first is in no manifest that counts.)
        let in_doubt = |e: Error| if self.ordinal > 0 { e.in_doubt() } else { e };
        self.file.sync().map_err(|e| in_doubt(e).at_path(&self.path))?;
        self.in_doubt = false;
        self.ordinal += 1;
        Ok(())
    }

    fn write_next(&mut self, bytes: &[u8]) -> Result<()> {
        self.write_at(bytes, self.offset_bytes)?;
        self.offset_bytes += bytes.len() as u64;
        Ok(())
    }

    fn write_at(&mut self, bytes: &[u8], offset_bytes: u64) -> Result<()> {
        let end = offset_bytes + bytes.len() as u64;
        self.reserve(end)?;
        self.file.write_all_at(bytes, offset_bytes)
    }

    /// Reserves space for what ends at `end_bytes`.
    fn reserve(&mut self, end_bytes: u64) -> Result<()> {
        if end_bytes <= self.allocated_bytes {
            return Ok(());
        }
        let ahead_bytes = self.reserved_ahead(end_bytes);
        let room = self.disk.room(&self.dir);
        let wanted = ahead_bytes - self.allocated_bytes;
        if room.is_none_or(|room| room.free_bytes / PLENTY >= wanted) {
            match self.reserve_up_to(ahead_bytes) {
                Err(e) if e.kind() == ErrorKind::DiskFull => {}
                done => return done,
            }
        }
        self.reserve_up_to(end_bytes)
    }

    /// Up to where space is reserved for what ends at `end_bytes` while there is plenty: where it is begun anew soon, until then,
    /// so that it takes nothing of what is held back once the disk is full.
    fn reserved_ahead(&self, end_bytes: u64) -> u64 {
        let mostly_past = self.first_edit_bytes + self.roll_over_bytes() + LEAST_RESERVE_BYTES;
        let most = end_bytes.next_multiple_of(PREALLOCATE_BYTES);
        if mostly_past < most { mostly_past.max(end_bytes) } else { most }
    }

    /// In whole steps of the least: a manifest that ends in another place was cut.
    fn reserve_up_to(&mut self, end_bytes: u64) -> Result<()> {
        let bytes = end_bytes.next_multiple_of(LEAST_RESERVE_BYTES);
        let reserved = self.file.preallocate(bytes);
        match reserved {
            Ok(()) => self.allocated_bytes = bytes,
            // What was reserved of it is room that others want.
            Err(_) => drop(self.file.truncate(self.allocated_bytes)),
        }
        reserved
    }
}

#[cfg(test)]
mod tests;
