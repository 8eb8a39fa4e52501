//! Many reads at once: through a ring of the kernel's where there is one, else one by one.
//!
//! 1. What a ring can take goes through it together: reads of our own files that are neither empty
//!    nor very large. Around the page cache each gets an aligned buffer of its own while it is under
//!    way, and is copied from there. Each is handed out as it comes.
//! 2. What came back short, was refused, or did not go at all is read by itself, as if there were no
//!    ring: that way knows the ends of files, interruptions, and file systems that refuse direct
//!    reads. So a ring may cost time, never an answer. An error of the device is not tried again.

use std::any::Any;
use std::cell::Cell;
use std::io::{self, ErrorKind};

use super::direct::{ALIGNMENT_BYTES, MAX_REQUEST_BYTES};
use super::file::RealFile;
use super::platform::{self, RawRead, Rings};
use crate::disk::{ReadRequest, Take};
use crate::error::{Error, Result};

/// A request without its file.
struct Wanted {
    offset_bytes: u64,
    length_bytes: usize,
    around: bool,
    /// Empty while a ring has it.
    buffer: Cell<Vec<u8>>,
}

/// Does `requests`, through `rings` if there are any; hands each to `take`.
pub(super) fn read(requests: Vec<ReadRequest>, rings: Option<&Rings>, take: &mut Take<'_>) {
    if requests.len() < 2 {
        return requests.into_iter().for_each(|request| take(0, request.read_alone()));
    }
    let (files, wanted): (Vec<_>, Vec<_>) = requests
        .into_iter()
        .map(|ReadRequest { file, offset_bytes, buffer, around }| {
            let length_bytes = buffer.len();
            (file, Wanted { offset_bytes, length_bytes, around, buffer: buffer.into() })
        })
        .unzip();
    let own: Vec<_> =
        files.iter().map(|file| (&**file as &dyn Any).downcast_ref::<RealFile>()).collect();
    let mut done = vec![false; own.len()];
    if let Some(rings) = rings {
        read_together(&own, &wanted, rings, &mut |number, read| {
            done[number] = true;
            take(number, read);
        });
    }
    let left: Vec<_> = (0..done.len()).filter(|&i| !done[i]).collect();
    for &i in left.iter().filter(|_| left.len() > 1) {
        if let Some((file, false)) = own[i].map(|file| file.for_reads(wanted[i].around)) {
            platform::will_need(file, wanted[i].offset_bytes, wanted[i].length_bytes);
        }
    }
    for (number, (file, wanted)) in files.into_iter().zip(wanted).enumerate() {
        if !done[number] {
            let Wanted { offset_bytes, length_bytes, around, buffer } = wanted;
            // A ring that failed has kept it.
            let mut buffer = buffer.into_inner();
            buffer.resize(length_bytes, 0);
            take(number, ReadRequest { file, offset_bytes, buffer, around }.read_alone());
        }
    }
}

/// Hands out what a ring made of the reads, of those that it did.
fn read_together(own: &[Option<&RealFile>], wanted: &[Wanted], rings: &Rings, take: &mut Take<'_>) {
    let fits = |length| (1..=MAX_REQUEST_BYTES - 2 * ALIGNMENT_BYTES).contains(&length);
    let taken = own.iter().enumerate().filter_map(|(i, file)| Some((i, (*file)?)));
    let taken: Vec<_> = taken.filter(|(i, _)| fits(wanted[*i].length_bytes)).collect();
    if taken.len() < 2 || !rings.are_allowed() {
        return;
    }
    let mut reads = taken.iter().map(|&(i, file)| raw(file, &wanted[i]));
    rings.read(&mut reads, &mut |at, read, found| {
        let (number, file) = taken[at];
        if let Some(read) = came_back(file, read, found, &wanted[number]) {
            take(number, read);
        }
    });
}

/// A read for a ring. Through the page cache the buffer itself goes with it.
fn raw<'a>(file: &'a RealFile, wanted: &Wanted) -> RawRead<'a> {
    let (file, is_direct) = file.for_reads(wanted.around);
    let offset_bytes = wanted.offset_bytes;
    if !is_direct {
        let buffer = wanted.buffer.take();
        return RawRead { file, offset_bytes, buffer, start: 0 };
    }
    let lead = offset_bytes % ALIGNMENT_BYTES as u64;
    let length = (lead as usize + wanted.length_bytes).next_multiple_of(ALIGNMENT_BYTES);
    let mut buffer = vec![0; length + ALIGNMENT_BYTES];
    let start = buffer.as_ptr().align_offset(ALIGNMENT_BYTES);
    buffer.truncate(start + length);
    RawRead { file, offset_bytes: offset_bytes - lead, buffer, start }
}

/// What became of a read that went through a ring, which found so many bytes; `None` if it is to be done by itself.
fn came_back(
    file: &RealFile,
    read: RawRead<'_>,
    found: io::Result<usize>,
    wanted: &Wanted,
) -> Option<Result<Vec<u8>>> {
    // Whether it went around the cache it says itself: a handle for that may have come since. Only such a
    // read left the buffer here, and begins before what is wanted.
    let mut own = wanted.buffer.take();
    let is_direct = !own.is_empty();
    let lead = (wanted.offset_bytes - read.offset_bytes) as usize;
    let from = read.start + lead;
    let whole = match &found {
        Ok(found) if *found >= lead + wanted.length_bytes => {
            read.buffer.get(from..from + wanted.length_bytes)
        }
        _ => None,
    };
    match (whole, found) {
        (Some(whole), _) if is_direct => {
            own.copy_from_slice(whole);
            Some(Ok(own))
        }
        (Some(_), _) => Some(Ok(read.buffer)),
        (None, Err(e)) if is_final(&e) => {
            Some(Err(Error::io("read", file.path(), &e).at_offset(wanted.offset_bytes)))
        }
        (None, _) => {
            wanted.buffer.set(if is_direct { own } else { read.buffer });
            None
        }
    }
}

/// Whether the same read by itself would fail too: it is the device's word, not the ring's.
fn is_final(error: &io::Error) -> bool {
    const PASSING: [ErrorKind; 5] = [
        ErrorKind::Interrupted,
        ErrorKind::WouldBlock,
        ErrorKind::InvalidInput,
        ErrorKind::Unsupported,
        ErrorKind::OutOfMemory,
    ];
    !PASSING.contains(&error.kind()) && !platform::is_cancelled(error)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// It was taken for a direct one then, and its bytes were copied into a buffer that it had taken along: a
    /// panic.
    #[test]
    fn a_read_through_the_cache_comes_back_though_there_is_a_direct_handle_by_then() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, [7; 100]).unwrap();
        let file = RealFile::new(&path, std::fs::File::open(&path).unwrap(), None, false, None);
        let mut wanted = Wanted {
            offset_bytes: 10,
            length_bytes: 50,
            around: false,
            buffer: vec![0; 50].into(),
        };
        let mut read = raw(&file, &wanted);
        let found = platform::read_up_to(read.file, &mut read.buffer, read.offset_bytes);
        // As it is where the first try met too many open files, and another one did not.
        wanted.around = true;
        assert_eq!(came_back(&file, read, found, &wanted).unwrap().unwrap(), [7; 50]);
    }
}
