//! A buffer that is written little by little, while others read what was written.
//!
//! With [`pieces`](super::pieces) the one place of this room with `unsafe`. A [`Tail`] is the part that nobody has
//! yet; what is cut from its beginning is [`Shared`] from then on, and nobody writes to it any more.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use super::Buffer;

/// Bytes that do not change, shared by clones.
pub struct Shared {
    start: NonNull<u8>,
    bytes: usize,
    home: Arc<Home>,
}

/// What the bytes stand in. It is only held: whoever asked it for its bytes would see those of a tail.
enum Home {
    Buffer(#[expect(dead_code, reason = "held for its bytes")] Buffer),
    Heap(#[expect(dead_code, reason = "held for its bytes")] Vec<u8>),
}

// SAFETY: the bytes are lent to be read alone, and their home may be dropped by any thread.
#[allow(unsafe_code)]
unsafe impl Send for Shared {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Shared {}

impl From<Vec<u8>> for Shared {
    fn from(mut bytes: Vec<u8>) -> Shared {
        let (start, length) = (NonNull::from(bytes.as_mut_slice()).cast(), bytes.len());
        Shared { start, bytes: length, home: Arc::new(Home::Heap(bytes)) }
    }
}

impl Clone for Shared {
    fn clone(&self) -> Shared {
        Shared { start: self.start, bytes: self.bytes, home: self.home.clone() }
    }
}

impl Deref for Shared {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `home` holds these bytes, they are initialised (as all of a buffer or of a vector's length are), and
        // nobody writes to them: the tail they were cut from begins behind them, and no one else can.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(self.start.as_ptr(), self.bytes)
        }
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Shared {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

/// What is left of a buffer: nobody else has any of it.
pub struct Tail {
    start: NonNull<u8>,
    bytes: usize,
    home: Arc<Home>,
}

// SAFETY: it is the only way to its bytes, as a `Vec` is.
#[allow(unsafe_code)]
unsafe impl Send for Tail {}

impl Tail {
    /// All of a buffer.
    pub fn of(mut buffer: Buffer) -> Tail {
        let (start, bytes) = (NonNull::from(&mut *buffer).cast(), buffer.len());
        Tail { start, bytes, home: Arc::new(Home::Buffer(buffer)) }
    }

    /// How many bytes are left.
    pub fn left_bytes(&self) -> usize {
        self.bytes
    }

    /// Cuts off what `write` writes: it gets all that is left, and leaves what it did not need.
    pub fn cut(&mut self, write: impl FnOnce(&mut &mut [u8])) -> Shared {
        // SAFETY: `home` holds these bytes, they are initialised, and nobody else has any of them: what was cut off
        // before lies in front of `start`.
        #[allow(unsafe_code)]
        let mut left = unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) };
        write(&mut left);
        let written = self.bytes - left.len().min(self.bytes);
        let cut = Shared { start: self.start, bytes: written, home: self.home.clone() };
        // SAFETY: `written <= self.bytes`, so it is within the buffer or at its end.
        #[allow(unsafe_code)]
        let start = unsafe { self.start.add(written) };
        (self.start, self.bytes) = (start, self.bytes - written);
        cut
    }
}

impl std::fmt::Debug for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tail({} bytes)", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use bytes::BufMut;

    use super::*;
    use crate::memory::Pool;

    #[test]
    fn what_is_cut_off_stays_as_it_was_written() {
        let pool = Pool::new(1 << 20);
        let mut tail = Tail::of(pool.take(1000));
        let mut cut = Vec::new();
        for number in 0..40u8 {
            let left = tail.left_bytes();
            let length = 5 + usize::from(number);
            if left < length {
                break;
            }
            cut.push((tail.cut(|out| out.put_slice(&vec![number; length])), number));
            assert_eq!(tail.left_bytes(), left - length);
        }
        assert!(cut.len() > 20);
        let nothing = tail.cut(|_| {});
        assert!(nothing.is_empty());
        drop(tail);
        for (bytes, number) in &cut {
            assert!(bytes.len() == 5 + usize::from(*number) && bytes.iter().all(|b| b == number));
        }
        // The last of them gives the buffer back.
        let last = cut.pop().unwrap().0.clone();
        drop((cut, nothing));
        assert!(pool.used_bytes() > 0 && last.len() > 20);
        drop(last);
        assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn whoever_leaves_other_bytes_than_he_got_breaks_nothing() {
        let mut tail = Tail::of(Buffer::of(&[7; 100]));
        let all = tail.cut(|out| *out = &mut []);
        assert!(all.len() == 100 && tail.left_bytes() == 0);
        let mut tail = Tail::of(Buffer::of(&[7; 100]));
        let longer = Box::leak(vec![1; 500].into_boxed_slice());
        assert!(tail.cut(|out| *out = longer).is_empty() && tail.left_bytes() == 100);
    }

    #[test]
    fn others_read_while_the_tail_is_written() {
        let mut tail = Tail::of(Buffer::of(&[0; 100_000]));
        std::thread::scope(|scope| {
            let (to, from) = std::sync::mpsc::channel::<(u8, Shared)>();
            scope.spawn(move || {
                for (number, bytes) in from {
                    assert!(bytes.iter().all(|byte| *byte == number));
                }
            });
            for number in 0..=255 {
                let bytes = tail.cut(|out| out.put_slice(&[number; 300]));
                to.send((number, bytes)).unwrap();
            }
        });
        assert_eq!(Shared::from(vec![1, 2, 3])[..], [1, 2, 3]);
    }
}
