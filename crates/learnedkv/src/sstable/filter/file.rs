//! Filters as files: written and synced before an edit names them, read when their table is opened or when
//! misses have paid for them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Filter, FilterKind, decode};
use crate::disk::{Access, Disk, File};
use crate::error::{Error, Result};
use crate::format::filter::{FilterFile, decode_filter, encode_filter};
use crate::format::manifest::FilterRecord;
use crate::format::name::{file_name, file_number};

const KIND: &str = "filter";

/// The file of a filter.
pub fn filter_path(dir: &Path, id: u64) -> PathBuf {
    dir.join(file_name(KIND, id))
}

/// The filter whose file is named `name`.
pub fn filter_id(name: &str) -> Option<u64> {
    file_number(KIND, name)
}

/// The bytes of the file.
pub(super) fn encode(tag: u64, kind: FilterKind, keys: u64, payload: &[u8]) -> Vec<u8> {
    encode_filter(tag, &FilterFile { kind: kind.name(), keys, payload })
}

/// Reads the bytes of a filter file of the table tagged `tag`, which has `keys` keys.
///
/// # Errors
/// `Corruption` if it is damaged or another table's; `Unsupported` if a newer version wrote it.
pub fn from_bytes(tag: u64, keys: u64, bytes: &[u8]) -> Result<Box<dyn Filter>> {
    let file = decode_filter(tag, bytes)?;
    if file.keys != keys {
        return Err(Error::corruption(format!(
            "filter: expected one of {keys} keys, found one of {}",
            file.keys
        )));
    }
    decode(file.kind, file.payload)
}

/// Writes and syncs filter `id`. Its name is not durable yet: sync the directory before the edit.
///
/// # Errors
/// Any error of the disk; what is there is then an orphan.
pub fn write(
    disk: &dyn Disk,
    dir: &Path,
    id: u64,
    bytes: &[u8],
    rests: bool,
) -> Result<FilterRecord> {
    let path = filter_path(dir, id);
    let file = disk.create(&path)?;
    file.write_all_at(bytes, 0)?;
    file.sync().map_err(|e| e.at_path(&path))?;
    Ok(FilterRecord { id, file_bytes: bytes.len() as u64, rests })
}

/// Opens the file of the filter that `record` tells of, which is as long as that says.
fn open(disk: &dyn Disk, path: &Path, record: FilterRecord) -> Result<Arc<dyn File>> {
    let file = disk.open(path, Access::Sequential)?;
    let length = file.length_bytes()?;
    if length != record.file_bytes {
        return Err(Error::corruption(format!(
            "filter: expected a file of {} bytes, found {length}",
            record.file_bytes
        )));
    }
    Ok(file)
}

/// Looks whether the filter that `record` tells of is there, as long as that says. It is not read.
///
/// # Errors
/// `NotFound`; `Corruption` if it has another length; any error of the disk.
pub fn check(disk: &dyn Disk, dir: &Path, record: FilterRecord) -> Result<()> {
    open(disk, &filter_path(dir, record.id), record).map(|_| ())
}

/// Reads the filter that `record` tells of, for the table tagged `tag`, which has `keys` keys.
///
/// # Errors
/// As [`from_bytes`]; any error of the disk.
pub fn read(
    disk: &dyn Disk,
    dir: &Path,
    record: FilterRecord,
    tag: u64,
    keys: u64,
) -> Result<Box<dyn Filter>> {
    let path = filter_path(dir, record.id);
    let read = || {
        let file = open(disk, &path, record)?;
        let mut bytes = vec![0; record.file_bytes as usize];
        file.read_exact_at(&mut bytes, 0)?;
        from_bytes(tag, keys, &bytes)
    };
    read().map_err(|e| e.at_path(&path))
}
