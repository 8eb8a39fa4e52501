//! The directory of a run. It is marked as ours when we make it, and only what is marked is removed.
//!
//! ```text
//! DIR/learnedkv-bench.txt   the mark; says whether the store was to be kept; locked while a run is at work
//! DIR/db/                   the store
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::interrupt::{Held, attempt, hold};
use crate::sizes::show_bytes;
use crate::{Error, Result};

const MARK_NAME: &str = "learnedkv-bench.txt";
const STORE_NAME: &str = "db";
const MARK_PASSING: &str = "made by learnedkv bench, which may remove it\n";
const MARK_PASSING_DIR: &str = "made by learnedkv bench, which may remove it and this directory\n";
const MARK_KEPT: &str = "made by learnedkv bench --keep: never removed by it\n";

/// A marked directory. Unless it is kept, the store goes when this is dropped, however the run ends, and at an interrupt.
#[derive(Debug)]
pub struct Place {
    made: Made,
    left: bool,
    /// Dropped last, and the lock behind it.
    _held: Held,
    _mark: File,
}

#[derive(Debug, Clone)]
struct Made {
    dir: PathBuf,
    keep: bool,
    /// Whether `dir` itself is ours and not only what is in it.
    made_dir: bool,
}

impl Place {
    /// Marks `dir`, which must be new, empty, or left behind by a run that was cut short.
    ///
    /// # Errors
    /// If it holds anything else, or another run is at work there.
    pub fn prepare(dir: &Path, keep: bool) -> Result<Place> {
        let mark = dir.join(MARK_NAME);
        let mut made_dir = !dir.exists();
        fs::create_dir_all(dir).map_err(|e| Error::io("create the directory", dir, &e))?;
        let (mut locked, found) = take_mark(dir, &mark)?;
        match found.as_deref() {
            Some(text) if text == MARK_PASSING || text == MARK_PASSING_DIR => {
                made_dir = text == MARK_PASSING_DIR;
                remove_store(dir)?;
            }
            Some(text) if text == MARK_KEPT => {
                return Err(Error::usage(format!(
                    "{}: holds a store that an earlier run was told to keep; remove it or choose \
                     another --dir",
                    dir.display()
                )));
            }
            Some(_) => return Err(not_ours(dir)),
            None => {}
        }
        let text = match (keep, made_dir) {
            (true, _) => MARK_KEPT,
            (false, true) => MARK_PASSING_DIR,
            (false, false) => MARK_PASSING,
        };
        let written = locked.set_len(0).and_then(|()| locked.rewind());
        let written = written.and_then(|()| locked.write_all(text.as_bytes()));
        written.map_err(|e| Error::io("write the mark", &mark, &e))?;
        let made = Made { dir: dir.to_path_buf(), keep, made_dir };
        let interrupted = made.clone();
        let held = hold(move || Some(interrupted.undo()));
        Ok(Place { made, left: false, _held: held, _mark: locked })
    }

    /// Where the store lives.
    pub fn store(&self) -> PathBuf {
        store_in(&self.made.dir)
    }

    /// Removes what was made, unless it is kept.
    ///
    /// # Errors
    /// If something cannot be removed.
    pub fn leave(mut self) -> Result<()> {
        self.left = true;
        self.made.clean()
    }
}

impl Made {
    /// At an interrupt, while an engine may be writing still. What became of it, in words.
    fn undo(&self) -> String {
        let dir = self.dir.display();
        if self.keep {
            format!("{dir} is kept as it is")
        } else if attempt(|| self.clean().is_ok() || !self.dir.exists()) {
            format!("the store in {dir} is removed")
        } else {
            format!("{dir} could not be removed: the next run there does it")
        }
    }

    fn clean(&self) -> Result<()> {
        if self.keep {
            return Ok(());
        }
        remove_store(&self.dir)?;
        let mark = self.dir.join(MARK_NAME);
        fs::remove_file(&mark).map_err(|e| Error::io("remove the mark", &mark, &e))?;
        if self.made_dir {
            // Someone may have put something beside the store meanwhile: then the directory stays.
            let _ = fs::remove_dir(&self.dir);
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.left {
            // A run that failed reports its own error; the next run cleans up what stays now.
            let _ = self.made.clean();
        }
    }
}

/// Where the store of a run in `dir` lives.
#[must_use]
pub fn store_in(dir: &Path) -> PathBuf {
    dir.join(STORE_NAME)
}

/// The mark of `dir`, locked, and what it says; `None`: it is new, and was put into an empty directory.
fn take_mark(dir: &Path, mark: &Path) -> Result<(File, Option<String>)> {
    let failed = |e| Error::io("open the mark", mark, &e);
    loop {
        match OpenOptions::new().read(true).write(true).open(mark) {
            Ok(mut file) => {
                lock(&file, dir, mark)?;
                let is_there = fs::metadata(mark).ok().zip(file.metadata().ok());
                if is_there.is_some_and(|(there, ours)| there.ino() == ours.ino()) {
                    let mut text = String::new();
                    // What is no text is none of our marks.
                    return match file.read_to_string(&mut text) {
                        Ok(_) => Ok((file, Some(text))),
                        Err(e) if e.kind() == ErrorKind::InvalidData => Err(not_ours(dir)),
                        Err(e) => Err(failed(e)),
                    };
                }
                // Whose it was has just left.
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let mut entries = fs::read_dir(dir).map_err(|e| Error::io("read", dir, &e))?;
                if entries.next().is_some() {
                    return Err(not_ours(dir));
                }
                match OpenOptions::new().read(true).write(true).create_new(true).open(mark) {
                    Ok(file) => return lock(&file, dir, mark).map(|()| (file, None)),
                    Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                    Err(e) => return Err(failed(e)),
                }
            }
            Err(e) => return Err(failed(e)),
        }
    }
}

fn lock(file: &File, dir: &Path, mark: &Path) -> Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(Error::usage(format!(
            "{}: another run is at work there; wait for it, or choose another --dir",
            dir.display()
        ))),
        Err(TryLockError::Error(e)) => Err(Error::io("lock the mark", mark, &e)),
    }
}

fn not_ours(dir: &Path) -> Error {
    Error::usage(format!(
        "{}: expected a new or empty directory, found files that this program did not make; choose \
         another --dir",
        dir.display()
    ))
}

/// Removes what a run that was killed left in `dir`, if it was marked, and not to be kept.
///
/// # Errors
/// If something cannot be removed.
pub fn remove_left(dir: &Path) -> Result<()> {
    let made_dir = match fs::read_to_string(dir.join(MARK_NAME)) {
        Ok(text) if text == MARK_PASSING => false,
        Ok(text) if text == MARK_PASSING_DIR => true,
        _ => return Ok(()),
    };
    Made { dir: dir.to_path_buf(), keep: false, made_dir }.clean()
}

fn remove_store(dir: &Path) -> Result<()> {
    let store = store_in(dir);
    match fs::remove_dir_all(&store) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("remove the old store", &store, &e))
        }
        _ => Ok(()),
    }
}

/// Refuses a run whose store would not fit on the disk of `dir`. A store may need three times its
/// data for a while: log, values being rewritten, and the outcome.
///
/// # Errors
/// If there is too little room.
pub fn check_room(dir: &Path, data_bytes: u64) -> Result<()> {
    let absolute = std::path::absolute(dir).map_err(|e| Error::io("find", dir, &e))?;
    let Some(existing) = absolute.ancestors().find(|ancestor| ancestor.exists()) else {
        return Ok(());
    };
    let Ok(disk) = rustix::fs::statvfs(existing) else { return Ok(()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let needed = data_bytes.saturating_mul(3);
    if needed > free {
        return Err(Error::usage(format!(
            "{}: the store may need {} for a while, and {} is free; ask for fewer keys or smaller \
             values, or choose another --dir",
            dir.display(),
            show_bytes(needed),
            show_bytes(free)
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As if the run had been killed: its lock goes, and nothing else.
    fn killed(place: Place) {
        place._mark.unlock().unwrap();
        std::mem::forget(place);
    }

    #[test]
    fn only_what_was_made_here_is_removed() {
        let outer = tempfile::tempdir().unwrap();
        let dir = outer.path().join("store");
        let place = Place::prepare(&dir, false).unwrap();
        fs::create_dir(place.store()).unwrap();
        fs::write(place.store().join("file"), "x").unwrap();
        let refused = Place::prepare(&dir, false).unwrap_err().to_string();
        assert!(refused.contains("another run is at work there"), "{refused}");
        assert!(place.store().join("file").exists(), "its store was removed");
        killed(place);
        let place = Place::prepare(&dir, false).unwrap();
        assert!(!place.store().exists(), "the store of a killed run goes");
        fs::create_dir(place.store()).unwrap();
        killed(place);
        remove_left(&dir).unwrap();
        assert!(!dir.exists());
        remove_left(&dir).unwrap();

        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("precious"), "x").unwrap();
        let refused = Place::prepare(&dir, false).unwrap_err().to_string();
        assert!(refused.contains("found files that this program did not make"), "{refused}");
        remove_left(&dir).unwrap();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "nothing was touched");
    }

    #[test]
    fn what_was_kept_is_never_removed() {
        let outer = tempfile::tempdir().unwrap();
        let place = Place::prepare(outer.path(), true).unwrap();
        fs::create_dir(place.store()).unwrap();
        place.leave().unwrap();
        remove_left(outer.path()).unwrap();
        let refused = Place::prepare(outer.path(), false).unwrap_err().to_string();
        assert!(refused.contains("told to keep"), "{refused}");
        assert!(outer.path().join(STORE_NAME).exists());
    }

    #[test]
    fn a_run_that_cannot_fit_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check_room(dir.path(), 1).is_ok());
        assert!(check_room(&dir.path().join("new/er"), u64::MAX / 4).is_err());
    }
}
