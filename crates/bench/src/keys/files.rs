//! Key sets from files and directories. Their bytes are not ours: each is checked, and what is
//! wrong is named with file, place, expected and found.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{KeySet, shown};
use crate::{Error, Result};

/// Reads a SOSD file: a little-endian `u64` count, then that many ascending little-endian `u64`
/// keys. At most `max_keys` are taken, from the start. Also returns how many duplicates there were.
///
/// # Errors
/// If the file cannot be read, its size does not fit its count, or its keys are not sorted.
pub fn read_sosd(path: &Path, max_keys: usize) -> Result<(KeySet, usize)> {
    let mut file = File::open(path).map_err(|e| unreadable(path, &e))?;
    let size_bytes = file.metadata().map_err(|e| unreadable(path, &e))?.len();
    if size_bytes < 8 {
        return Err(Error::usage(format!(
            "{} at byte 0: expected a SOSD key count of 8 bytes, found a file of {size_bytes} bytes",
            shown(path)
        )));
    }
    let mut header = [0; 8];
    file.read_exact(&mut header).map_err(|e| unreadable(path, &e))?;
    let count = u64::from_le_bytes(header);
    let expected_bytes = count.checked_mul(8).and_then(|b| b.checked_add(8));
    if expected_bytes != Some(size_bytes) {
        return Err(Error::usage(format!(
            "{} at byte 0: the count says {count} keys, so expected a file of {} bytes, found \
             {size_bytes}; is it a SOSD file of 64-bit keys?",
            shown(path),
            expected_bytes.map_or_else(|| "more than 2^64".to_string(), |b| b.to_string()),
        )));
    }
    let taken = usize::try_from(count).unwrap_or(usize::MAX).min(max_keys);
    let mut keys = Vec::with_capacity(taken);
    let mut chunk = vec![0; 1 << 20];
    while keys.len() < taken {
        let length = chunk.len().min((taken - keys.len()) * 8);
        file.read_exact(&mut chunk[..length]).map_err(|e| unreadable(path, &e))?;
        for eight in chunk[..length].chunks_exact(8) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(eight);
            let key = u64::from_le_bytes(bytes);
            if let Some(&last) = keys.last()
                && key < last
            {
                return Err(Error::usage(format!(
                    "{} at byte {}: expected keys in ascending order, found {key} after {last}",
                    shown(path),
                    8 + keys.len() * 8
                )));
            }
            keys.push(key);
        }
    }
    let set = KeySet::from_integers(keys);
    let duplicates = taken - set.len();
    Ok((set, duplicates))
}

/// Reads a file of one key per line: any bytes but the line feed; empty lines are left out. At most
/// `max_keys` lines are taken. Also returns how many duplicates there were.
///
/// # Errors
/// If the file cannot be read.
pub fn read_text(path: &Path, max_keys: usize) -> Result<(KeySet, usize)> {
    let buffer = fs::read(path).map_err(|e| unreadable(path, &e))?;
    let mut pieces = Vec::new();
    let mut start = 0;
    for line in buffer.split(|&b| b == b'\n') {
        if pieces.len() == max_keys {
            break;
        }
        if !line.is_empty() {
            pieces.push(start..start + line.len());
        }
        start += line.len() + 1;
    }
    let lines = pieces.len();
    let set = KeySet::from_pieces(&buffer, pieces);
    let duplicates = lines - set.len();
    Ok((set, duplicates))
}

/// Walks `root` and takes the path of every file and directory below it as a key, without following
/// symbolic links, until there are `max_keys`. Also returns how many directories could not be read.
///
/// # Errors
/// If `root` itself cannot be read.
pub fn read_paths(root: &Path, max_keys: usize) -> Result<(KeySet, usize)> {
    let mut entries = fs::read_dir(root).map_err(|e| unreadable(root, &e))?;
    let mut buffer = Vec::new();
    let mut pieces = Vec::new();
    let mut waiting: Vec<PathBuf> = Vec::new();
    let mut skipped = 0;
    loop {
        for entry in entries.flatten() {
            if pieces.len() == max_keys {
                return Ok((KeySet::from_pieces(&buffer, pieces), skipped));
            }
            let path = entry.path();
            let bytes = OsStr::as_bytes(path.as_os_str());
            pieces.push(buffer.len()..buffer.len() + bytes.len());
            buffer.extend_from_slice(bytes);
            // `file_type` of an entry describes a symbolic link itself, so links are not followed.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(path);
            }
        }
        entries = loop {
            let Some(next) = waiting.pop() else {
                return Ok((KeySet::from_pieces(&buffer, pieces), skipped));
            };
            match fs::read_dir(&next) {
                Ok(entries) => break entries,
                Err(_) => skipped += 1,
            }
        };
    }
}

/// A file that was named on the command line and cannot be read.
fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    Error::usage(format!("{}: could not read the keys: {error}", shown(path)))
}
