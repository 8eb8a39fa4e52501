//! A file in memory that many threads lend parts of.
//!
//! What is lent is counted, so that the file stays mapped as long as anybody holds a part of it: up for each part, and down
//! again. With one count all threads would write to one line of memory ([`super::lines`]). So there may be several
//! handles to the same bytes, each with a count of its own, and with the reads until this one looks whether the bytes are in the
//! page cache ([`crate::disk::Residence`]). The thread that made the map has the first; for others one is made when they read
//! there first, if there is room for it, or they share the first.

use std::sync::OnceLock;

use bytes::Bytes;

use crate::disk::Turn;
use crate::memory::lines;

/// As many threads lend without minding one another.
const LENDERS: usize = 8;

/// See the module page.
#[derive(Debug)]
pub struct Lenders {
    first: Lender,
    /// Whose the first is.
    first_place: usize,
    others: OnceLock<Box<Others>>,
}

/// Those of other threads; `None`: these share the first.
type Others = [OnceLock<Option<Box<Apart>>>; LENDERS];

/// What one thread, or a few, lend from.
#[derive(Debug)]
pub struct Lender {
    /// All of the file.
    pub bytes: Bytes,
    /// When these threads look next.
    pub turn: Turn,
}

/// One on a line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Apart(Lender);

/// Owner of bytes that are counted: nothing else stands on the line of the count.
#[repr(align(64))]
struct Alone(Bytes);

impl AsRef<[u8]> for Alone {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// What another lender takes: itself, the owner of its bytes, their count, and what it is found by.
const ANOTHER_BYTES: usize =
    size_of::<Apart>() + 2 * size_of::<Alone>() + size_of::<Others>() / LENDERS;

impl Lender {
    fn of(bytes: Bytes) -> Lender {
        Lender { bytes, turn: Turn::default() }
    }
}

impl Lenders {
    /// Those of a file.
    pub fn of(bytes: Bytes) -> Lenders {
        let first = Lender::of(bytes);
        Lenders { first, first_place: lines::place(LENDERS), others: OnceLock::new() }
    }

    /// All of the file, for whoever lends nothing.
    pub fn bytes(&self) -> &Bytes {
        &self.first.bytes
    }

    /// This thread's. Where one is to be made for it, `make` is given its size, bytes, and what makes it: to call it or not.
    #[inline]
    pub fn own(&self, make: impl FnOnce(usize, &dyn Fn())) -> &Lender {
        let place = lines::place(LENDERS);
        if place == self.first_place {
            return &self.first;
        }
        match self.others.get().and_then(|others| others[place].get()) {
            Some(Some(another)) => &another.0,
            Some(None) => &self.first,
            None => self.another(place, make),
        }
    }

    #[cold]
    fn another(&self, place: usize, make: impl FnOnce(usize, &dyn Fn())) -> &Lender {
        let place = &self.others.get_or_init(Box::default)[place];
        make(ANOTHER_BYTES, &|| {
            let bytes = || Bytes::from_owner(Alone(self.first.bytes.clone()));
            place.get_or_init(|| Some(Box::new(Apart(Lender::of(bytes())))));
        });
        place.get_or_init(|| None).as_ref().map_or(&self.first, |another| &another.0)
    }

    /// What those take that were made for others, bytes.
    pub fn size_bytes(&self) -> usize {
        let made = self.others.get().into_iter().flat_map(|others| others.iter());
        made.filter(|other| matches!(other.get(), Some(Some(_)))).count() * ANOTHER_BYTES
    }
}
