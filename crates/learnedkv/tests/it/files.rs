//! The files of a database in `/db` on a simulated disk: found, read, damaged, put back.

use std::path::{Path, PathBuf};

use learnedkv::Error;
use learnedkv::disk::sim::SimDisk;
use learnedkv::disk::{Access, Disk};

/// Those whose names begin so, in the order of their names.
pub fn files(disk: &SimDisk, prefix: &str) -> Vec<PathBuf> {
    let names = disk.list(Path::new("/db")).unwrap();
    names.iter().filter(|n| n.starts_with(prefix)).map(|n| Path::new("/db").join(n)).collect()
}

/// The last whose name begins so: an earlier one may be left over.
pub fn last_file(disk: &SimDisk, prefix: &str) -> PathBuf {
    files(disk, prefix).pop().unwrap_or_else(|| panic!("no {prefix}"))
}

pub fn exists(disk: &SimDisk, path: &Path) -> bool {
    files(disk, "").iter().any(|file| file == path)
}

pub fn read(disk: &SimDisk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, Access::Sequential).unwrap();
    let mut bytes = vec![0; file.length_bytes().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Flips those bits of the byte at an offset, from the end if it is below zero.
pub fn flip(disk: &SimDisk, path: &Path, at: i64, bits: u8) {
    let file = disk.open(path, Access::Random).unwrap();
    let from_end = file.length_bytes().unwrap().checked_add_signed(at).unwrap();
    let at = if at < 0 { from_end } else { at as u64 };
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ bits], at).unwrap();
}

/// Puts a file as it was in its place.
pub fn restore(disk: &SimDisk, path: &Path, bytes: &[u8]) {
    if exists(disk, path) {
        disk.remove(path).unwrap();
    }
    disk.create(path).unwrap().write_all_at(bytes, 0).unwrap();
}

/// Whether an error tells of damage in that file.
pub fn is_about(error: &Error, path: &Path) -> bool {
    error.is_corruption() && error.path() == Some(path)
}
